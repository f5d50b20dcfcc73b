//! The acts a state consists of. A step is one job; its name is unique within a stay in a state.

use super::state::UnknownWord;
use super::state::words;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

words! {
    /// One act on the way of a node.
    Step, "step" {
        /// Into the live image, identity checked.
        BootLive = "boot_live",
        Inventory = "inventory",
        PowerOff = "power_off",
        WriteImage = "write_image",
        /// Into the installed OS.
        BootDisk = "boot_disk",
        Converge = "converge",
        /// For items that hold only after a reboot.
        Reboot = "reboot",
        /// Converge once more: must find nothing to do.
        Recheck = "recheck",
        Gates = "gates",
        /// The gate that a node survives a reboot.
        RebootTest = "reboot_test",
        GatesAfterReboot = "gates_after_reboot",
        Admit = "admit",
        Drain = "drain",
        /// Out of the scheduler's configuration.
        Remove = "remove",
        Wipe = "wipe",
    }
}

impl Step {
    /// Seconds one attempt may take. Servers with many DIMMs train memory for ten minutes and more before firmware shows a sign of life.
    pub fn timeout_s(self) -> u64 {
        match self {
            Self::Inventory | Self::PowerOff | Self::Remove => 10 * 60,
            Self::BootLive | Self::BootDisk | Self::Reboot | Self::RebootTest | Self::Admit => 30 * 60,
            Self::WriteImage | Self::Converge | Self::Recheck => 60 * 60,
            Self::Gates | Self::GatesAfterReboot => 2 * 60 * 60,
            Self::Wipe => 24 * 60 * 60,
            Self::Drain => 7 * 24 * 60 * 60,
        }
    }

    /// Rounds before the phase has failed.
    pub fn max_rounds(self) -> i32 {
        match self {
            Self::Wipe | Self::Gates | Self::GatesAfterReboot => 2,
            _ => 3,
        }
    }

    /// Whether it starts the machine, and so needs its share of the rack's power.
    pub fn powers_on(self) -> bool {
        matches!(self, Self::BootLive | Self::BootDisk)
    }

    /// What a person reads while it runs.
    pub fn title(self) -> &'static str {
        match self {
            Self::BootLive => "boot the live image",
            Self::Inventory => "take the inventory",
            Self::PowerOff => "power off",
            Self::WriteImage => "write the image",
            Self::BootDisk => "boot from disk",
            Self::Converge => "install the stack",
            Self::Reboot => "reboot for the stack",
            Self::Recheck => "check the stack again",
            Self::Gates => "run the gates",
            Self::RebootTest => "survive a reboot",
            Self::GatesAfterReboot => "run the gates after the reboot",
            Self::Admit => "admit to the scheduler",
            Self::Drain => "drain",
            Self::Remove => "remove from the scheduler",
            Self::Wipe => "wipe the disks",
        }
    }
}
