# shellcheck shell=bash disable=SC2034 # read by build and pack
# NVIDIA's container toolkit without libnvidia-container: nvidia-ctk, nvidia-cdi-hook and
# nvidia-container-runtime, with CDI as the runtime's mode.

project=NVIDIA/nvidia-container-toolkit
title="NVIDIA's container toolkit, for CDI"
needs=(golang-1.26-go gcc libc6-dev)
# Debian 13 has Go 1.24, and the source needs 1.25.
from_backports=yes
needs_gib=4
# The second file has the licences of the vendored modules.
licences=(LICENSE THIRD_PARTY_NOTICES.md)

find_upstream() {
    local tag
    upstream=$(find_word versions.mk '^LIB_VERSION := ([^ ]+) *$')
    tag=$(find_word versions.mk '^LIB_TAG := *([^ ]+) *$')
    upstream+=${tag:+"~$tag"}
}

# NVIDIA's own package of these three programs is called -base.
extra_fields() {
    echo "Provides: nvidia-container-toolkit-base (= $version)"
    echo "Conflicts: nvidia-container-toolkit-base"
    echo "Replaces: nvidia-container-toolkit-base"
}

add_files() { install -D -m 644 "$RECIPES/$package/config.toml" "$1/etc/nvidia-container-runtime/config.toml"; }
