#!/bin/sh
# Runs the program with the name of this file in the system behind the link `root`, as root. The
# system sees the host's /dev, /run and processes, and the directory of the controller. The mounts
# are in a separate namespace and end with the program.
set -eu
folder=$(dirname "$0")
if [ "${MUSTER_LAB_INSIDE:-}" != yes ]; then
    export MUSTER_LAB_INSIDE=yes
    exec unshare --mount --propagation private -- "$0" "$@"
fi
unset MUSTER_LAB_INSIDE
root=$(readlink -f "$folder/root")
controller=$(readlink "$folder/controller")
mount --rbind /dev "$root/dev"
mount --rbind /run "$root/run"
mount -t proc proc "$root/proc"
mount --rbind "$controller" "$root$controller"
# Without the folder of this file: the directory of the controller is visible inside too.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec chroot "$root" "$(basename "$0")" "$@"
