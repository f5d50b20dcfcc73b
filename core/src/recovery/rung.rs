//! The rungs of a ladder, from the mildest to the hardest. Each is made of steps that the lifecycle has anyway: a rung asks for no act of its own.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

use crate::lifecycle::state::{UnknownWord, words};
use crate::lifecycle::steps::Step;

words! {
    /// Something that is tried on a node that fails.
    Rung, "rung" {
        /// Look at the machine before anything is changed: which parts are there, by serial, and what its BMC says of firmware and BIOS.
        Collect = "collect",
        /// Converge once more: it starts services that are dead, and mends what drifted.
        RestartServices = "restart_services",
        /// Through the operating system, by the BMC where that hangs. It resets every GPU too.
        Reboot = "reboot",
        /// Off by the BMC, and on again: what keeps its state through a reboot loses it.
        PowerCycle = "power_cycle",
        /// The pool's image and stack anew.
        Reimage = "reimage",
        /// Nothing more is tried: its parts go back to their maker.
        Rma = "rma",
    }
}

impl Rung {
    /// The steps it consists of, within the stay in `repairing`. None of what is done elsewhere: another image is written in `imaging`.
    pub fn steps(self) -> &'static [Step] {
        match self {
            Self::Collect => &[Step::Inventory, Step::FirmwareLook],
            Self::RestartServices => &[Step::Converge],
            Self::Reboot => &[Step::Reboot],
            Self::PowerCycle => &[Step::PowerOff, Step::BootDisk],
            Self::Reimage | Self::Rma => &[],
        }
    }

    /// Whether gates may pass after it that failed before.
    pub fn heals(self) -> bool {
        matches!(
            self,
            Self::RestartServices | Self::Reboot | Self::PowerCycle | Self::Reimage
        )
    }

    /// Whether it brings the node to what its pool asks for now, which may be something else than what it runs.
    pub fn installs(self) -> bool {
        matches!(self, Self::RestartServices | Self::Reimage)
    }

    /// Whether the installed system must answer for it.
    pub fn needs_answers(self) -> bool {
        matches!(self, Self::Collect | Self::RestartServices | Self::Reboot)
    }

    /// As people read it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Collect => "look at its parts",
            Self::RestartServices => "restart what is dead",
            Self::Reboot => "reboot",
            Self::PowerCycle => "power cycle",
            Self::Reimage => "re-image",
            Self::Rma => "return it to its maker",
        }
    }
}
