# shellcheck shell=bash
# What every image recipe shares: progress lines, the cache, "skip when unchanged", and a private apt that resolves
# and downloads packages without touching the host's own package state.
#
# Environment: MUSTER_CACHE  where results and downloads go (default: .cache in the repository)
#              MIRROR        a Debian mirror to use instead of the host's own apt sources
#              KEYRING       the keyring that signs it (default: Debian's archive keyring)

set -euo pipefail

IMAGES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${MUSTER_CACHE:-$(dirname "$IMAGES")/.cache}
SUITE=bookworm
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
    if [ -n "${MIRROR:-}" ]; then
        printf "deb $signed%s %s main\n" "$MIRROR" "$SUITE" "$MIRROR" "$SUITE-updates"
        return
    fi
    host=$(. /etc/os-release && echo "$VERSION_CODENAME")
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v host="$host" -v suite="$SUITE" -v signed="$signed" '
            $2 == host || $2 == host "-updates" || $2 == host "-security" {
                sub("^" host, suite, $2)
                print "deb " signed $0
            }' | LC_ALL=C sort -u
}

# private_apt ARGUMENT...: apt-get over those sources, with an empty package state and its own cache. Proxies and
# access rules are the host's.
private_apt() {
    local root="$CACHE/apt/$SUITE"
    apt-get -q=2 \
        -o Dir::Etc::SourceList="$root/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
        -o Dir::State="$root/state" -o Dir::State::status="$root/state/status" \
        -o Dir::Cache="$root/cache" -o Dir::Cache::archives="$CACHE/apt/archives" \
        -o APT::Sandbox::User=root -o APT::Architecture=amd64 -o APT::Install-Recommends=false \
        -o APT::Get::Assume-Yes=true -o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::http::Timeout=60 \
        "$@"
}

# apt_update: makes the private apt ready and refreshes its index when it is older than a day. With no network an
# index that is there is used as it is. Takes the lock of $CACHE/apt, which apt_fetch gives back.
apt_update() {
    local root="$CACHE/apt/$SUITE"
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

# apt_has PACKAGE: whether the sources have it.
apt_has() { private_apt --print-uris download "$1" >/dev/null 2>&1; }

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

# newest_build LIST: when the youngest package of the list was built (Unix seconds): the clock of reproducible images.
# A .deb is an ar archive; its first member's header carries the time at bytes 24 to 36.
newest_build() {
    awk '{print $2}' "$1" | while read -r file; do
        head -c 36 "$CACHE/apt/archives/$file" | tail -c 12
        echo
    done | sort -n | tail -n 1 | tr -d ' '
}
