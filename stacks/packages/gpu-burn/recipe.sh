# shellcheck shell=bash disable=SC2034 # read by build and pack
# A burn of Muster's own: gpu_burn, called and read like wilicc/gpu-burn by the gates.

# No source of another project.
project=''
title='GPUs multiply matrices and compare the results'
needs=(nvidia-cuda-toolkit)
from_backports=''
needs_gib=14
licences=(LICENSE NOTICE)

# own_source FOLDER: the source of this folder. Another version has another date.
own_source() {
    mkdir "$1"
    cp "$RECIPES"/gpu-burn/*.cu "$RECIPES"/gpu-burn/*.h "$RECIPES/../../LICENSE" "$RECIPES/../../NOTICE" "$1/"
    upstream=1.0
    # 30 November 2026.
    epoch=1795996800
}
