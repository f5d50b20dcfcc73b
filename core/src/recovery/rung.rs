//! The rungs of a ladder, from the mildest to the most severe. Each rung is built from existing
//! lifecycle steps, and needs no special operation.

use crate::lifecycle::steps::Step;
use crate::words;

words! {
    /// An action tried on a failing node.
    #[derive(PartialOrd, Ord)]
    Rung, "rung" {
        /// Collects the machine's state before any change: the installed parts by serial number,
        /// and the firmware and BIOS versions reported by the BMC.
        Collect = "collect",
        /// Converges again, which starts dead services and repairs configuration drift.
        RestartServices = "restart_services",
        /// Reboots through the operating system, or through the BMC if the system hangs. Every GPU
        /// is reset too.
        Reboot = "reboot",
        /// Powers the node off and on through the BMC, which clears state that survives a reboot.
        PowerCycle = "power_cycle",
        /// Installs the pool's image and stack again.
        Reimage = "reimage",
        /// Ends the ladder; the parts go back to the vendor.
        Rma = "rma",
    }
}

impl Rung {
    /// Returns the steps of the rung within the state `repairing`. Steps of other states are not
    /// included: a new image is written in `imaging`.
    pub fn steps(self) -> &'static [Step] {
        match self {
            Self::Collect => &[Step::Inventory, Step::FirmwareLook],
            Self::RestartServices => &[Step::Converge],
            Self::Reboot => &[Step::Reboot],
            Self::PowerCycle => &[Step::PowerOff, Step::BootDisk],
            Self::Reimage | Self::Rma => &[],
        }
    }

    /// Returns whether failed gates may pass after the rung.
    pub fn heals(self) -> bool {
        matches!(
            self,
            Self::RestartServices | Self::Reboot | Self::PowerCycle | Self::Reimage
        )
    }

    /// Returns whether the rung installs the pool's current software, which may differ from the
    /// running software.
    pub fn installs(self) -> bool {
        matches!(self, Self::RestartServices | Self::Reimage)
    }

    /// Returns whether the rung writes a disk anew.
    pub fn erases(self) -> bool {
        matches!(self, Self::Reimage)
    }

    /// Returns whether the rung needs an answering installed system.
    pub fn needs_answers(self) -> bool {
        matches!(self, Self::Collect | Self::RestartServices | Self::Reboot)
    }

    /// Returns the text shown to users.
    pub fn title(self) -> &'static str {
        match self {
            Self::Collect => "check the parts",
            Self::RestartServices => "restart failed services",
            Self::Reboot => "reboot",
            Self::PowerCycle => "power cycle",
            Self::Reimage => "re-image",
            Self::Rma => "return to the maker",
        }
    }
}
