//! The firmware interface of the machine, by the Redfish name.

use super::Service;
use crate::plan::FirmwareKind;

/// The Redfish name of the machine's firmware interface, used as the boot mode.
pub(crate) fn boot_mode(service: &Service) -> &'static str {
    match service.machine.plan.firmware {
        FirmwareKind::Bios => "Legacy",
        FirmwareKind::Uefi => "UEFI",
    }
}

/// The BIOS version of a new machine, as packaged in Debian 12.
pub(crate) fn factory_bios(service: &Service) -> &'static str {
    match service.machine.plan.firmware {
        FirmwareKind::Bios => "SeaBIOS 1.16.2",
        FirmwareKind::Uefi => "OVMF 2022.11",
    }
}
