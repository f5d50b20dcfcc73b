//! What a BMC shows of its machine, and what it can be told, in Redfish's words whatever it speaks.

use std::fmt;

use muster_core::facts::Firmware;

/// Power as the BMC shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerState {
    On,
    Off,
    PoweringOn,
    PoweringOff,
    /// It said something else, or nothing.
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

/// How long a boot override holds. Some BMCs show `Continuous` for one that was set `Once`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideEnabled {
    Disabled,
    Once,
    Continuous,
    Unknown,
}

/// The boot override as it reads back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootOverride {
    pub enabled: OverrideEnabled,
    /// In Redfish's words, whatever the BMC speaks.
    pub target: String,
    /// How it says to boot. Some drop what was asked; the firmware's own setting holds then.
    pub mode: Option<Firmware>,
}

impl BootOverride {
    /// Whether the next boot goes to the network. Some BMCs never say that an override holds, but none names a target that does not.
    pub fn network(&self) -> bool {
        self.enabled != OverrideEnabled::Disabled && self.target == "Pxe"
    }

    /// Whether the next boot follows the firmware's own order, or goes to the disk.
    pub fn local(&self) -> bool {
        self.enabled == OverrideEnabled::Disabled || matches!(self.target.as_str(), "None" | "Hdd")
    }
}

impl fmt::Display for BootOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot override {:?} to {:?}", self.enabled, self.target)?;
        match self.mode {
            Some(mode) => write!(f, " ({mode:?})"),
            None => Ok(()),
        }
    }
}

/// What a BMC says of its machine; no more than power where each question costs it much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BmcView {
    pub power: PowerState,
    pub uuid: Option<String>,
    pub serial: Option<String>,
    /// Where a maker has its serial in the SKU, as Dell has its service tag.
    pub sku: Option<String>,
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    pub bios_version: Option<String>,
    /// `OK`, `Warning`, `Critical`.
    pub health: Option<String>,
}

/// Where the next boot goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootOnce {
    Pxe,
    /// No override: the firmware's own order.
    None,
}

/// Power acts, as Redfish calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    On,
    ForceOff,
    ForceRestart,
    GracefulShutdown,
}

/// How far a BMC is with something that takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    Running,
    /// It goes on by itself once the machine is restarted, or once somebody lets it.
    Waits,
    Done,
    Failed,
    /// The BMC does not know it any more.
    Gone,
}

/// A task as a BMC shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    pub state: TaskState,
    pub percent: Option<u64>,
    /// The latest of its messages.
    pub said: Vec<String>,
}
