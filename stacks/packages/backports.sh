# shellcheck shell=bash
# The backports of a suite. Sourced after images/lib.sh.

# add_backports: the backports of the suite beside its sources. Whole source lines in MIRROR name
# their backports themselves.
add_backports() {
    local lines
    case ${MIRROR:-} in 'deb '*) return ;; esac
    lines=$(apt_sources)
    MIRROR=$(
        printf '%s\n' "$lines"
        sed -nE "s#^(deb (\[[^]]*\] )?[^ ]+ )$SUITE .*#\\1$SUITE-backports main#p" <<<"$lines"
    )
    MIRROR=${MIRROR//$'\n'/|}
}
