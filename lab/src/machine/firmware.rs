//! What a machine's firmware and BMC remember about booting.
//!
//! BIOS machines try the network, then the NVMe disks, then the others, on every boot. UEFI machines follow the boot order in
//! their own variables, which an installed system may change; the order the factory left there is the same.
//!
//! A one-time override is for one boot and one only: it is forgotten, durably, before the guest starts.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{LabError, io};
use crate::files::write_atomically;
use crate::plan::FirmwareKind;

/// What the firmware tries first on one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootOrder {
    /// Its own order: network first for BIOS, its variables' boot order for UEFI.
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

/// Redfish's `BootSourceOverrideTarget`, as far as these machines go.
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
    /// For how many boots.
    pub enabled: OverrideEnabled,
    /// What to boot.
    pub target: OverrideTarget,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Settings {
    boot_override: BootOverride,
    boots: u64,
    /// The UEFI boot order has been written once from the plan's order, so the machine is past the factory.
    variables_written: bool,
}

/// The settings of one machine, kept in `firmware.json`.
#[derive(Debug)]
pub struct Firmware {
    kind: FirmwareKind,
    path: PathBuf,
    settings: Settings,
}

impl Firmware {
    /// Reads what an earlier run left, or starts as from the factory.
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

    /// The override in force.
    pub(crate) fn boot_override(&self) -> BootOverride {
        self.settings.boot_override
    }

    /// How often the machine has booted.
    pub(crate) fn boots(&self) -> u64 {
        self.settings.boots
    }

    /// Sets or clears the override.
    pub(crate) fn set_override(&mut self, boot_override: BootOverride) -> Result<(), LabError> {
        self.settings.boot_override = boot_override;
        write_atomically(&self.path, &self.settings)
    }

    /// Uses up a one-time override and counts the boot. Written down before the boot happens.
    ///
    /// OVMF takes an order given from outside by writing it into its variables, where it stays. So it is given for a machine
    /// fresh from the factory and for an override, and after "disks first" once more, to bring back network first.
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
            // Reopened each time: the settings must survive the lab.
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
