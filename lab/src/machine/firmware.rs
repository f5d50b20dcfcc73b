//! The boot settings stored by a machine's firmware and BMC.
//!
//! BIOS machines try the network, then NVMe disks, then other disks, on every boot. UEFI machines
//! follow the boot order in
//! their variables, changeable by an installed system; the factory order is the same.
//!
//! A one-time override is valid for a single boot, and is removed from disk before the guest
//! starts.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{LabError, io};
use crate::files::write_atomically;
use crate::plan::FirmwareKind;

/// The first boot device of a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootOrder {
    /// The firmware's order: network first for BIOS, the boot order in the variables for UEFI.
    Own,
    /// The network, then the disks.
    NetworkFirst,
    /// The disks, then the network.
    DisksFirst,
}

/// Redfish's `BootSourceOverrideEnabled`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OverrideEnabled {
    /// No override.
    #[default]
    Disabled,
    /// The next boot only.
    Once,
    /// Every boot.
    Continuous,
}

/// Redfish's `BootSourceOverrideTarget`, as supported by these machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OverrideTarget {
    /// The firmware's own order.
    #[default]
    None,
    /// The network.
    Pxe,
    /// The disks.
    Hdd,
}

/// A boot override.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootOverride {
    /// The number of boots.
    pub enabled: OverrideEnabled,
    /// The boot device.
    pub target: OverrideTarget,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Settings {
    boot_override: BootOverride,
    boots: u64,
    /// The UEFI boot order was written once from the plan's order, so the machine has left the
    /// factory state.
    variables_written: bool,
}

/// The settings of a machine, stored in `firmware.json`.
#[derive(Debug)]
pub struct Firmware {
    kind: FirmwareKind,
    path: PathBuf,
    settings: Settings,
}

impl Firmware {
    /// Reads the settings of an earlier run, or starts in the factory state.
    pub(crate) fn open(kind: FirmwareKind, dir: &Path) -> Result<Self, LabError> {
        let path = dir.join("firmware.json");
        let settings = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|e| LabError::Plan(format!("{}: {e}", path.display())))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Settings::default(),
            Err(error) => return Err(io(format!("read {}", path.display()))(error)),
        };
        Ok(Self {
            kind,
            path,
            settings,
        })
    }

    /// Returns the current override.
    pub(crate) fn boot_override(&self) -> BootOverride {
        self.settings.boot_override
    }

    /// Returns the number of boots.
    pub(crate) fn boots(&self) -> u64 {
        self.settings.boots
    }

    /// Sets or clears the override.
    pub(crate) fn set_override(&mut self, boot_override: BootOverride) -> Result<(), LabError> {
        self.settings.boot_override = boot_override;
        write_atomically(&self.path, &self.settings)
    }

    /// Uses a one-time override and counts the boot. Stored before the boot starts.
    ///
    /// OVMF stores an order from outside in its variables for good. The order is therefore given
    /// for a machine in the
    /// factory state and for an override, and once more after "disks first", to restore network
    /// first.
    pub(crate) fn begin_boot(&mut self) -> Result<(u64, BootOrder), LabError> {
        let settings = &mut self.settings;
        let asked = match settings.boot_override.enabled {
            OverrideEnabled::Disabled => OverrideTarget::None,
            OverrideEnabled::Once | OverrideEnabled::Continuous => settings.boot_override.target,
        };
        if settings.boot_override.enabled == OverrideEnabled::Once {
            settings.boot_override = BootOverride::default();
        }
        let order = match asked {
            OverrideTarget::Pxe => BootOrder::NetworkFirst,
            OverrideTarget::Hdd => BootOrder::DisksFirst,
            OverrideTarget::None
                if self.kind == FirmwareKind::Uefi && !settings.variables_written =>
            {
                BootOrder::NetworkFirst
            }
            OverrideTarget::None => BootOrder::Own,
        };
        settings.variables_written = order != BootOrder::DisksFirst;
        settings.boots += 1;
        let boot = (settings.boots, order);
        write_atomically(&self.path, &self.settings)?;
        Ok(boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(kind: FirmwareKind, overrides: &[Option<BootOverride>]) -> Vec<BootOrder> {
        let dir = tempfile::tempdir().unwrap();
        let boot = |wanted: &Option<BootOverride>| {
            // Reopened each time, because the settings must survive the lab.
            let mut firmware = Firmware::open(kind, dir.path()).unwrap();
            if let Some(wanted) = wanted {
                firmware.set_override(*wanted).unwrap();
            }
            firmware.begin_boot().unwrap().1
        };
        overrides.iter().map(boot).collect()
    }

    fn once(target: OverrideTarget) -> Option<BootOverride> {
        Some(BootOverride {
            enabled: OverrideEnabled::Once,
            target,
        })
    }

    #[test]
    fn a_one_time_override_is_for_one_boot() {
        let seen = orders(
            FirmwareKind::Bios,
            &[
                None,
                once(OverrideTarget::Hdd),
                None,
                once(OverrideTarget::Pxe),
                None,
            ],
        );
        assert_eq!(
            seen,
            [
                BootOrder::Own,
                BootOrder::DisksFirst,
                BootOrder::Own,
                BootOrder::NetworkFirst,
                BootOrder::Own
            ]
        );
    }

    #[test]
    fn uefi_variables_decide_the_boot_order_with_two_exceptions() {
        let seen = orders(
            FirmwareKind::Uefi,
            &[None, None, once(OverrideTarget::Hdd), None, None],
        );
        let want = [
            BootOrder::NetworkFirst,
            BootOrder::Own,
            BootOrder::DisksFirst,
            BootOrder::NetworkFirst,
            BootOrder::Own,
        ];
        assert_eq!(seen, want);
    }
}
