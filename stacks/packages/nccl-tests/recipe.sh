# shellcheck shell=bash disable=SC2034 # read by build and pack
# NVIDIA's tests of NCCL: all_reduce_perf and its siblings, without MPI.

project=NVIDIA/nccl-tests
title="NVIDIA's tests of NCCL"
needs=(nvidia-cuda-toolkit libnccl-dev make)
from_backports=''
needs_gib=14
licences=(LICENSE.txt)

find_upstream() { upstream=$(find_word src/common.h '^#define NCCL_TESTS_VERSION "([^"]*)".*'); }
