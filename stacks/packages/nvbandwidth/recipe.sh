# shellcheck shell=bash disable=SC2034 # read by build and pack
# NVIDIA's measurement of the links of each GPU, for one node.

project=NVIDIA/nvbandwidth
title="NVIDIA's measurement of the links of GPUs"
needs=(nvidia-cuda-toolkit cmake make libboost-program-options-dev)
from_backports=''
needs_gib=14
licences=(LICENSE Licenses.txt)

find_upstream() { upstream=$(find_word version.h '^#define NVBANDWIDTH_VERSION "v([^"]*)".*'); }
