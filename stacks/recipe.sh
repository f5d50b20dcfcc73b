# shellcheck shell=bash
# Shared by the recipes of packages (`stacks/modules`, `stacks/packages`): common arguments,
# commands in a chroot, and the repository of the results. Sourced after images/lib.sh.

out='' revision=1
# The process of the command in the chroot, and its last status and CPU seconds.
inside='' status=0 seconds=0

# check_out: the folder of the results is named. Makes `out` an absolute path.
check_out() {
    [ -n "$out" ] || die "--out is missing; write the folder for the package"
    out=$(realpath -m "$out")
    [[ $out =~ ^[A-Za-z0-9/._+~@-]+$ ]] || die "--out: $out has a character that a source line of apt cannot hold; use letters, digits and ._+~@-"
}

check_revision() {
    [[ $revision =~ ^[1-9][0-9]{0,3}$ ]] || die "--revision: $revision is no number from 1 to 9999"
}

# scratch_inside: `scratch` for a build in a chroot. The command in the chroot ends with the recipe.
scratch_inside() {
    scratch
    trap 'stop_inside; rm -rf --one-file-system "$WORK"' EXIT
}

# run_inside COMMAND...: becomes a command in the chroot, with processes and mounts that end with
# the command, without network and without the host's environment. Started by `&`: `timeout` then
# leads a process group. The recipe's lock is not the command's.
run_inside() {
    exec nice timeout --kill-after=60 "$BUILD_LIMIT" unshare --mount --pid --net --fork --kill-child --root="$root" --mount-proc \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TZ=UTC SOURCE_DATE_EPOCH="$epoch" "$@" 9>&-
}

# stop_inside: ends the command in the chroot, when the build is stopped, and waits for its last
# process. In its first moment the command has no process group yet.
stop_inside() {
    [ -n "$inside" ] || return 0
    { kill -KILL -- "-$inside" || kill -KILL "$inside"; } 2>/dev/null || return 0
    wait "$inside" 2>/dev/null || true
    for _ in {1..50}; do
        kill -0 -- "-$inside" 2>/dev/null || return 0
        sleep 0.1
    done
}

# run_timed LOG COMMAND...: runs a command in the chroot, with its messages in a file. Sets
# `status`, and the CPU seconds in `seconds`.
run_timed() {
    local log=$1 user='' system=''
    shift
    status=0
    TIMEFORMAT='%U %S'
    # `wait` returns when a signal comes; a command in the foreground would delay its trap.
    {
        time {
            run_inside "$@" >"$log" 2>&1 &
            inside=$!
            wait "$inside"
        }
    } 2>"$WORK/seconds" || status=$?
    inside=''
    read -r user system < <(tail -n 1 "$WORK/seconds") || true
    seconds=$(awk -v user="$user" -v kernel="$system" 'BEGIN {printf "%.0f", user + kernel}')
}

# lock_out: makes the repository in `out`, and takes the lock of `out`.
lock_out() {
    packages=$out/packages
    mkdir -p "$packages"
    exec 9>"$out/.lock"
    flock --wait 600 9 || die "another build has held the lock of $out for ten minutes"
}

# installed_size: the size of the tree's files in KiB, for the field of a package.
installed_size() {
    (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%s\n') | awk '{kib += int(($1 + 1023) / 1024)} END {print kib}'
}

# settle_tree FILE...: the modes and the time of the tree; the named files are executable.
settle_tree() {
    local name
    # Five digits: a folder loses the bit of its group too.
    find "$tree" -type d -exec chmod 00755 {} +
    find "$tree" -type f -exec chmod 644 {} +
    for name in "$@"; do chmod 755 "$tree/$name"; done
    find "$tree" -exec touch -hd "@$epoch" {} +
}

# put_file FILE NAME: copies a file into the repository, where it appears as a whole. WORK may be on
# another disk.
put_file() {
    cp "$1" "$packages/$2.new"
    mv "$packages/$2.new" "$packages/$2"
}

# put_package OPTION...: packs the tree with options of dpkg-deb, and puts the package into the
# repository. Sets `file`, the name of the package. Another build of the same version is kept.
put_package() {
    file=${package}_${version}_amd64.deb
    SOURCE_DATE_EPOCH=$epoch dpkg-deb --root-owner-group "$@" --build "$tree" "$WORK/$file" >"$WORK/dpkg-deb" 2>&1 ||
        die "the package cannot be built: $(tail -n 1 "$WORK/dpkg-deb")"
    if [ -e "$packages/$file" ]; then
        cmp -s "$WORK/$file" "$packages/$file" ||
            die "$packages has another build of $package $version, which nodes would not replace; write --revision $((revision + 1)), or remove $file"
    else
        put_file "$WORK/$file" "$file"
    fi
}

# index: the repository's list of packages, and its Release file with the time of its youngest
# package.
index() {
    local newest file
    newest=$(for file in "$packages"/*.deb; do
        package_time "$file"
        echo
    done | sort -n | tail -n 1)
    (cd "$packages" && dpkg-scanpackages --multiversion .) 2>"$WORK/scan" | sed 's|^Filename: \./|Filename: |' >"$WORK/Packages" ||
        die "the packages cannot be listed: $(tail -n 1 "$WORK/scan")"
    printf 'Date: %s\nSHA256:\n %s %d Packages\n' "$(LC_ALL=C date -u -d "@$newest" '+%a, %d %b %Y %H:%M:%S UTC')" \
        "$(sha256sum <"$WORK/Packages" | cut -d' ' -f1)" "$(stat -c %s "$WORK/Packages")" >"$WORK/Release"
    put_file "$WORK/Packages" Packages
    put_file "$WORK/Release" Release
}

# show_repository: the last lines of a recipe.
show_repository() {
    say "lock it with: muster stack lock --also \"deb [trusted=yes] copy:$packages /\""
    echo "$packages/$file"
}
