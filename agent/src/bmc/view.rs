//! State read from a BMC and actions sent to a BMC. Both protocols use the terms of Redfish.

use std::fmt;

use muster_core::facts::Firmware;

/// Power state as reported by the BMC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerState {
    On,
    Off,
    PoweringOn,
    PoweringOff,
    /// The BMC reported another value or omitted the power state.
    #[default]
    Unknown,
}

impl fmt::Display for PowerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
            Self::PoweringOn => "powering on",
            Self::PoweringOff => "powering off",
            Self::Unknown => "an unknown power state",
        })
    }
}

/// Lifetime of a boot override. Some BMCs report `Continuous` after `Once` was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideEnabled {
    Disabled,
    Once,
    Continuous,
    Unknown,
}

/// The boot override as read from the BMC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootOverride {
    pub enabled: OverrideEnabled,
    /// Redfish name of the boot target, also for IPMI.
    pub target: String,
    /// Boot mode of the override. Some BMCs drop the requested mode, and the firmware then uses its
    /// own setting.
    pub mode: Option<Firmware>,
    /// The refusal of a BMC that made the change all the same.
    pub refusal: Option<String>,
}

impl BootOverride {
    /// Returns whether the next boot uses the network. Some BMCs never report an override as
    /// active, but a BMC reports the target only for an active override.
    pub fn network(&self) -> bool {
        self.enabled != OverrideEnabled::Disabled && self.target == "Pxe"
    }

    /// Returns whether the next boot follows the boot order of the firmware or uses the disk.
    pub fn local(&self) -> bool {
        self.enabled == OverrideEnabled::Disabled || matches!(self.target.as_str(), "None" | "Hdd")
    }
}

impl fmt::Display for BootOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot override {:?} to {:?}", self.enabled, self.target)?;
        if let Some(mode) = self.mode {
            write!(f, " ({mode:?})")?;
        }
        match &self.refusal {
            Some(refusal) => write!(f, ", set although the BMC refused it ({refusal})"),
            None => Ok(()),
        }
    }
}

/// Facts reported by the BMC about the machine. By IPMI only `power` is set, because each question
/// costs a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BmcView {
    pub power: PowerState,
    /// SMBIOS UUID, as text.
    pub uuid: Option<String>,
    /// Serial number. Depending on the vendor, the serial of the board or of the chassis.
    pub serial: Option<String>,
    /// SKU of the machine. Dell reports the service tag here instead of in `serial`.
    pub sku: Option<String>,
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    /// Version of the system firmware.
    pub bios_version: Option<String>,
    /// Health rollup: `OK`, `Warning` or `Critical`.
    pub health: Option<String>,
}

/// Target of the next boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootOnce {
    Pxe,
    /// Clears the override, so that the machine follows the boot order of its firmware.
    None,
}

impl BootOnce {
    /// Returns whether the next boot goes to this target.
    pub fn holds(self, seen: &BootOverride) -> bool {
        match self {
            Self::Pxe => seen.network(),
            Self::None => seen.local(),
        }
    }
}

/// Power actions, with the names of Redfish `ResetType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    On,
    ForceOff,
    ForceRestart,
    GracefulShutdown,
}

/// Progress of a long-running task on a BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    Running,
    /// The task continues after a restart of the machine or after an operator releases it.
    Waits,
    Done,
    Failed,
    /// The BMC no longer lists the task.
    Gone,
}

/// A task as reported by the BMC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// Progress of the task.
    pub state: TaskState,
    /// Completed part in percent, if reported.
    pub percent: Option<u64>,
    /// The latest messages of the task.
    pub said: Vec<String>,
}
