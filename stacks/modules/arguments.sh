# shellcheck shell=bash
# Arguments that `build` and `pack` share, and their checks. Sourced after stacks/recipe.sh.

key='' certificate=''

# take_argument NAME VALUE...: takes a shared argument; false for another one.
take_argument() {
    [ $# -ge 2 ] || die "$1 needs a value"
    case $1 in
    --out) out=$2 ;;
    --key) key=$2 ;;
    --certificate) certificate=$2 ;;
    --revision) revision=$2 ;;
    *) return 1 ;;
    esac
}

# check_arguments: the shared arguments fit each other.
check_arguments() {
    check_out
    check_revision
    case ${key:+key}:${certificate:+certificate} in
    key:) die "--key has no certificate; add --certificate CERTIFICATE.der" ;;
    :certificate) die "--certificate has no key; add --key KEY.pem" ;;
    esac
    [ -z "$key" ] || [ -r "$key" ] || die "--key: $key cannot be read"
    [ -z "$certificate" ] || [ -r "$certificate" ] || die "--certificate: $certificate cannot be read"
}

# check_kernel RELEASE=VERSION
check_kernel() {
    local release=${1%%=*}
    [[ $1 =~ ^[0-9]+\.[0-9]+[A-Za-z0-9.+~-]*=[0-9][A-Za-z0-9.+~-]*$ ]] ||
        die "--kernel: ${1:-nothing} is no RELEASE=VERSION, such as 6.12.118+deb13-amd64=6.12.118-1"
    [[ $release- != *-rt-* ]] || die "$release is a real-time kernel, which NVIDIA's driver refuses; write a kernel without -rt"
}

# check_driver PACKAGE=VERSION
check_driver() {
    [[ ${1%%=*} =~ ^nvidia(-[a-z0-9]+)*-kernel-dkms$ ]] ||
        die "--driver: ${1%%=*} is no driver; write nvidia-kernel-dkms, nvidia-open-kernel-dkms or nvidia-tesla-535-kernel-dkms"
    [[ $1 =~ ^[a-z0-9-]+=[0-9]+\.[0-9.]+-[A-Za-z0-9.+~]+$ ]] ||
        die "--driver: $1 has no exact version; write PACKAGE=VERSION, such as nvidia-kernel-dkms=550.163.01-2"
}

# find_key: takes the key that an earlier build made in OUT/key; false without one. Half of a pair is
# left alone: a new key would replace the site's.
find_key() {
    local folder=$out/key
    case $([ ! -e "$folder/modules.pem" ] || echo key):$([ ! -e "$folder/modules.der" ] || echo certificate) in
    key:certificate) ;;
    key:) die "$folder has a key without its certificate; name both by --key and --certificate" ;;
    :certificate) die "$folder has a certificate without its key; name both by --key and --certificate" ;;
    *) return 1 ;;
    esac
    key=$folder/modules.pem certificate=$folder/modules.der
    say "signing with the key of $folder"
}

# check_key: the key signs without a person, in a way that gives the same bytes, and the certificate
# is the key's. Writes the certificate as PEM to $WORK/certificate.pem.
check_key() {
    local of_key of_certificate text
    if grep -q -- '-----BEGIN' "$certificate"; then
        die "--certificate: $certificate is PEM; write DER, as mokutil needs it: openssl x509 -in $certificate -outform DER -out CERTIFICATE.der"
    fi
    openssl x509 -inform DER -in "$certificate" -out "$WORK/certificate.pem" 2>/dev/null || die "--certificate: $certificate is no certificate"
    of_key=$(openssl pkey -in "$key" -passin pass: -pubout 2>/dev/null) || die "--key: $key is no PEM key, or has a passphrase; write a key without one"
    of_certificate=$(openssl x509 -in "$WORK/certificate.pem" -noout -pubkey)
    [ "$of_key" = "$of_certificate" ] || die "--certificate: $certificate belongs to another key than $key"
    text=$(openssl x509 -in "$WORK/certificate.pem" -noout -text)
    [[ $text == *'Public Key Algorithm: rsaEncryption'* ]] || die "--key: $key is no RSA key; shim and the kernel of Debian verify RSA"
}
