# A program that a node's own programs call. Each does what a booted machine would see, to the machine's folder alone.
case "$(basename "$0")" in
systemctl)
  case "$*" in
  *reboot) echo reboot >"$MACHINE/power" ;;
  *poweroff) echo poweroff >"$MACHINE/power" ;;
  esac
  ;;
mount)
  # The new root of a disk that an image was just written to.
  for at in "$@"; do :; done
  rm -rf "$MACHINE/disk"
  mkdir -p "$MACHINE/disk/etc/ssh" "$MACHINE/disk/usr/local/sbin" "$MACHINE/disk/root" "$MACHINE/disk/var/lib/dpkg"
  echo "root:x:0:0::/root:/bin/sh" >"$MACHINE/disk/etc/passwd"
  echo "root:x:0:" >"$MACHINE/disk/etc/group"
  ln -s "$MACHINE/hardware/sys" "$MACHINE/disk/sys"
  ln -s "$MACHINE/hardware/dev" "$MACHINE/disk/dev"
  rmdir "$at"
  ln -s "$MACHINE/disk" "$at"
  ;;
umount)
  rm "$1"
  mkdir "$1"
  ;;
blockdev | udevadm | e2fsck | resize2fs) ;;
*) echo "no such program on this machine: $0 $*" >&2 && exit 127 ;;
esac
