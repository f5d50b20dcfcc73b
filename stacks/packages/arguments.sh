# shellcheck shell=bash
# Arguments that `build` and `pack` share, and the recipes of the packages. Sourced after
# stacks/recipe.sh.

RECIPES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
KNOWN='nccl-tests, nvbandwidth, nvidia-container-toolkit or gpu-burn'

package='' debian=13

# take_argument NAME VALUE...: takes a shared argument; false for another one.
take_argument() {
    [ $# -ge 2 ] || die "$1 needs a value"
    case $1 in
    --package) package=$2 ;;
    --debian) debian=$2 ;;
    --out) out=$2 ;;
    --revision) revision=$2 ;;
    *) return 1 ;;
    esac
}

# extra_fields: fields that only one package has. A recipe replaces this function.
extra_fields() { :; }

# add_files TREE: files of the recipe itself, into the tree of the package. A recipe replaces this
# function.
add_files() { :; }

# check_arguments: the shared arguments are known. Reads the recipe of the package.
check_arguments() {
    case $package in
    nccl-tests | nvbandwidth | nvidia-container-toolkit | gpu-burn) ;;
    '') die "--package is missing; write $KNOWN" ;;
    *) die "--package: $package has no recipe; write $KNOWN" ;;
    esac
    check_out
    check_revision
    case $debian in
    13) SUITE=trixie ;;
    12) die "--debian: 12 has no recipe, because its archive has CUDA 11.8 and no NCCL; write 13" ;;
    *) die "--debian: $debian has no recipe; write 13" ;;
    esac
    # shellcheck source=nccl-tests/recipe.sh
    . "$RECIPES/$package/recipe.sh"
}
