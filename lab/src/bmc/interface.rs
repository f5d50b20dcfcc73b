//! The machine's firmware interface, in Redfish's words.

use super::Service;
use crate::plan::FirmwareKind;

/// Redfish's word for the machine's firmware interface.
pub(crate) fn boot_mode(service: &Service) -> &'static str {
    match service.machine.plan.firmware {
        FirmwareKind::Bios => "Legacy",
        FirmwareKind::Uefi => "UEFI",
    }
}

/// What the firmware calls itself when it is new; the versions are Debian 12's.
pub(crate) fn factory_bios(service: &Service) -> &'static str {
    match service.machine.plan.firmware {
        FirmwareKind::Bios => "SeaBIOS 1.16.2",
        FirmwareKind::Uefi => "OVMF 2022.11",
    }
}
