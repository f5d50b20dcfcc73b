//! Files of OVMF, the UEFI firmware of virtual machines.

/// The firmware code of OVMF (package ovmf).
pub(crate) const UEFI_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";

/// The factory variables of OVMF, copied for each machine.
pub(crate) const UEFI_FACTORY_VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";
