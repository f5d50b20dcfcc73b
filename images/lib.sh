# shellcheck shell=bash
# What every image recipe shares: progress lines, the cache, "skip when unchanged", and a private apt that resolves
# and downloads packages without touching the host's own package state.
#
# Environment: MUSTER_CACHE  where results and downloads go (default: .cache in the repository)
#              MIRROR        a Debian mirror to use instead of the host's own apt sources; or whole source lines
#                            "deb [signed-by=KEYRING] URL SUITE COMPONENT...", with | between two lines
#              KEYRING       the keyring that signs it (default: Debian's archive keyring)

set -euo pipefail

IMAGES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${MUSTER_CACHE:-$(dirname "$IMAGES")/.cache}
SUITE=bookworm
# Components of the sources; empty: those of the host's apt, and main of a mirror.
COMPONENTS=
KEYRING=${KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
# An index younger than this is not asked for again.
INDEX_MAX_AGE_MIN=1440

say() { printf '%s: %s\n' "$RECIPE" "$*" >&2; }
die() { say "error: $*"; exit 1; }

# need_root: package trees keep their owners, so they are unpacked as root.
need_root() { [ "$(id -u)" = 0 ] || die "must run as root"; }

# scratch: a temporary folder on the cache's disk; its path goes to $WORK, and it is removed on exit.
scratch() {
    mkdir -p "$CACHE/tmp"
    WORK=$(mktemp -d "$CACHE/tmp/$RECIPE.XXXXXX")
    # mmdebstrap must be able to enter it as another user.
    chmod 755 "$WORK"
    trap 'rm -rf --one-file-system "$WORK"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# lock_recipe: two builds of one recipe wait for each other instead of mixing their output.
lock_recipe() {
    mkdir -p "$CACHE/$RECIPE"
    exec 9>"$CACHE/$RECIPE/.lock"
    flock --wait 3600 9 || die "another build has held the lock for an hour"
}

# files_digest PATH...: one digest over the content of files and folders, blind to times.
files_digest() {
    find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum | sed -E "s#  ($IMAGES|$WORK)/#  #" | sha256sum | cut -d' ' -f1
}

# unchanged KEY FILE...: true when the last build had this key and its results are still there.
unchanged() {
    local key=$1 file
    shift
    for file in "$@"; do [ -s "$CACHE/$RECIPE/$file" ] || return 1; done
    [ "$(cat "$CACHE/$RECIPE/.key" 2>/dev/null)" = "$key" ]
}

# publish KEY FILE...: moves finished files from $WORK/out into the cache, the key last.
publish() {
    local key=$1 file
    shift
    rm -f "$CACHE/$RECIPE/.key"
    for file in "$@"; do mv -f "$WORK/out/$file" "$CACHE/$RECIPE/$file"; done
    printf '%s\n' "$key" >"$CACHE/$RECIPE/.key"
}

# apt_sources: the suite's source lines from MIRROR, else derived from the host's own Debian sources, in whatever format
# those are written.
apt_sources() {
    local signed='' host
    [ -r "$KEYRING" ] && signed="[signed-by=$KEYRING] "
    case ${MIRROR:-} in
    'deb '*)
        printf '%s\n' "${MIRROR//|/$'\n'}"
        return
        ;;
    ?*)
        printf "deb $signed%s %s %s\n" "$MIRROR" "$SUITE" "${COMPONENTS:-main}" "$MIRROR" "$SUITE-updates" "${COMPONENTS:-main}"
        return
        ;;
    esac
    host=$(. /etc/os-release && echo "$VERSION_CODENAME")
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v host="$host" -v suite="$SUITE" -v signed="$signed" -v components="$COMPONENTS" '
            $2 == host || $2 == host "-updates" || $2 == host "-security" {
                sub("^" host, suite, $2)
                if (components != "") $3 = components
                print "deb " signed $0
            }' | LC_ALL=C sort -u
}

# private_root: the folder of the private apt's sources, index and package state.
private_root() { printf '%s' "$CACHE/apt/$SUITE${COMPONENTS:+-all}"; }

# private_program PROGRAM ARGUMENT...: a program of apt over those sources, with an empty package
# state and its own cache. Proxies and access rules are the host's.
private_program() {
    local program=$1 root
    root=$(private_root)
    shift
    "$program" -q=2 \
        -o Dir::Etc::SourceList="$root/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
        -o Dir::State="$root/state" -o Dir::State::status="$root/state/status" \
        -o Dir::Cache="$root/cache" -o Dir::Cache::archives="$CACHE/apt/archives" \
        -o APT::Sandbox::User=root -o APT::Architecture=amd64 -o APT::Install-Recommends=false \
        -o APT::Get::Assume-Yes=true -o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::http::Timeout=60 \
        "$@"
}
private_apt() { private_program apt-get "$@"; }

# apt_update: makes the private apt ready and refreshes its index when it is older than a day. With no network an
# index that is there is used as it is. Takes the lock of $CACHE/apt, which apt_fetch gives back.
apt_update() {
    local root
    root=$(private_root)
    mkdir -p "$root/state/lists/partial" "$root/cache" "$CACHE/apt/archives/partial"
    exec 8>"$CACHE/apt/.lock"
    flock --wait 1800 8 || die "another download has held the apt cache for half an hour"
    : >"$root/state/status"
    apt_sources >"$root/sources.new"
    [ -s "$root/sources.new" ] || die "the host's apt has no Debian source to derive one from; set MIRROR="
    if ! cmp -s "$root/sources.new" "$root/sources.list"; then
        rm -f "$root/state/updated"
        mv "$root/sources.new" "$root/sources.list"
    fi
    [ -z "$(find "$root/state/updated" -mmin "-$INDEX_MAX_AGE_MIN" 2>/dev/null)" ] || return 0
    say "refreshing the package index of $SUITE"
    if private_apt -o APT::Update::Error-Mode=any update >&2; then
        touch "$root/state/updated"
    elif [ -e "$root/state/updated" ]; then
        say "the index cannot be refreshed; using the one of $(date -r "$root/state/updated" +%F)"
    else
        die "the package index cannot be fetched"
    fi
}

# apt_has PACKAGE[=VERSION]: whether the sources have it.
apt_has() { private_apt --print-uris download "$1" >/dev/null 2>&1; }

# apt_versions PACKAGE: the five newest versions of the sources, on one line.
apt_versions() { private_program apt-cache madison "$1" 2>/dev/null | awk '!seen[$3]++ && ++shown <= 5 {print $3}' | paste -sd' '; }

# apt_download FOLDER PACKAGE=VERSION: downloads one package, without the packages that it needs.
apt_download() { (cd "$1" && private_apt download "$2" >/dev/null) || die "the package cannot be downloaded: $2"; }

# apt_fetch LIST TARGET...: resolves the targets (and all they depend on, from nothing) and downloads the packages.
# Writes LIST: one line "sha256  file" per package, sorted by file, naming files in $CACHE/apt/archives.
apt_fetch() {
    local list=$1
    shift
    apt_update
    # Asked of an empty archive, else what has been downloaded would be left out.
    mkdir -p "$CACHE/apt/none/partial"
    private_apt -o Dir::Cache::archives="$CACHE/apt/none" --print-uris install "$@" >"$list.uris" || die "the packages cannot be resolved: $*"
    awk '{print $2}' "$list.uris" | LC_ALL=C sort >"$list.files"
    say "packages: $(wc -l <"$list.files")"
    private_apt --download-only install "$@" >/dev/null || die "the packages cannot be downloaded"
    (cd "$CACHE/apt/archives" && xargs sha256sum <"$list.files") >"$list"
    rm -f "$list.uris" "$list.files"
    exec 8>&-
}

# package_time FILE: when a package was built (Unix seconds); dpkg takes the date of its changelog.
# A .deb is an ar archive; its first member's header carries the time at bytes 24 to 36.
package_time() { head -c 36 "$1" | tail -c 12 | tr -d ' '; }

# newest_build LIST: when the youngest package of the list was built: the clock of reproducible
# images.
newest_build() {
    awk '{print $2}' "$1" | while read -r file; do
        package_time "$CACHE/apt/archives/$file"
        echo
    done | sort -n | tail -n 1
}

# make_repository LIST FOLDER: a flat repository of exactly the fetched packages: mmdebstrap can
# take nothing else.
make_repository() {
    local file
    mkdir "$2"
    awk '{print $2}' "$1" | while read -r file; do ln "$CACHE/apt/archives/$file" "$2/" 2>/dev/null || cp "$CACHE/apt/archives/$file" "$2/"; done
    (cd "$2" && apt-ftparchive packages . >Packages && apt-ftparchive release . >Release)
}
