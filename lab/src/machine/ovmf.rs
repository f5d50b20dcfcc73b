//! Files of OVMF, the UEFI of virtual machines.

/// OVMF itself (package ovmf).
pub(crate) const UEFI_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";

/// The variables OVMF leaves the factory with.
pub(crate) const UEFI_FACTORY_VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";
