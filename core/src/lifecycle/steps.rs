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
        /// Into a machine that somebody else installed.
        Adopt = "adopt",
        /// What a converge would change; nothing is changed.
        Drift = "drift",
        /// On, because somebody asked for it.
        PowerOn = "power_on",
        /// Through its firmware, because somebody asked for it.
        PowerCycle = "power_cycle",
        /// The pool's sweep: beside its jobs, or all of it while its scheduler holds it back.
        Sweep = "sweep",
        /// Another password for its BMC, because somebody asked for it.
        RotateBmc = "rotate_bmc",
        /// From the scheduler, for as long as it is measured; it stays in service.
        Hold = "hold",
        /// What lies between it and another node, each way.
        Pair = "pair",
        /// Firmware and BIOS as the stack wants them, by its BMC.
        Firmware = "firmware",
        /// What its BMC says of firmware and BIOS; nothing is changed.
        FirmwareLook = "firmware_look",
    }
}

impl Step {
    /// Seconds one attempt may take. Servers with many DIMMs train memory for ten minutes and more before firmware shows a sign of life.
    pub fn timeout_s(self) -> u64 {
        match self {
            // Only idle nodes are measured: whoever has jobs for longer keeps them, and is left out.
            Self::Hold => 60,
            Self::Inventory
            | Self::PowerOff
            | Self::PowerOn
            | Self::PowerCycle
            | Self::Remove
            | Self::Adopt
            | Self::Drift
            | Self::RotateBmc
            | Self::FirmwareLook => 10 * 60,
            Self::BootLive | Self::BootDisk | Self::Reboot | Self::RebootTest | Self::Admit => {
                30 * 60
            }
            Self::WriteImage | Self::Converge | Self::Recheck | Self::Pair | Self::Sweep => 60 * 60,
            Self::Gates | Self::GatesAfterReboot => 2 * 60 * 60,
            // Several updates one after the other, and a machine that goes through its firmware.
            Self::Firmware => 4 * 60 * 60,
            Self::Wipe => 24 * 60 * 60,
            Self::Drain => 7 * 24 * 60 * 60,
        }
    }

    /// Rounds before the phase has failed.
    pub fn max_rounds(self) -> i32 {
        match self {
            Self::Wipe | Self::Gates | Self::GatesAfterReboot | Self::Sweep | Self::Firmware => 2,
            Self::BootLive
            | Self::Inventory
            | Self::PowerOff
            | Self::WriteImage
            | Self::BootDisk
            | Self::Converge
            | Self::Reboot
            | Self::Recheck
            | Self::RebootTest
            | Self::Admit
            | Self::Drain
            | Self::Remove
            | Self::Adopt
            | Self::Drift
            | Self::PowerOn
            | Self::PowerCycle
            | Self::RotateBmc
            | Self::Hold
            | Self::Pair
            | Self::FirmwareLook => 3,
        }
    }

    /// Whether it starts the machine, and so needs its share of the rack's power.
    pub fn powers_on(self) -> bool {
        matches!(
            self,
            Self::BootLive | Self::BootDisk | Self::PowerOn | Self::PowerCycle | Self::Firmware
        )
    }

    /// Whether it may be stopped while it runs: a machine that is reset in the middle of a firmware update may never start again.
    pub fn may_be_stopped(self) -> bool {
        self != Self::Firmware
    }

    /// Whether it destroys what is on the disks: never done to a protected node.
    pub fn destroys(self) -> bool {
        matches!(self, Self::WriteImage | Self::Wipe)
    }

    /// Whether somebody's hand may be needed for it where there is no BMC.
    pub fn needs_a_hand(self) -> bool {
        matches!(self, Self::BootLive | Self::BootDisk | Self::PowerOff)
    }

    /// What tells how an attempt ended whose worker was not heard of any more.
    pub fn observation(self) -> &'static str {
        match self {
            Self::BootLive => "the boot's report and the BMC's power state",
            Self::PowerOff | Self::PowerOn | Self::PowerCycle => "the BMC's power state",
            Self::BootDisk | Self::Reboot | Self::RebootTest => "the node's boot id",
            Self::Inventory | Self::Adopt | Self::Drift => "another look at the node",
            Self::RotateBmc => "which of the two passwords the BMC takes",
            Self::Firmware | Self::FirmwareLook => "what its BMC says of firmware and BIOS",
            Self::WriteImage
            | Self::Converge
            | Self::Recheck
            | Self::Gates
            | Self::GatesAfterReboot
            | Self::Sweep
            | Self::Wipe => "the job's spool on the node",
            Self::Pair => "another measurement of the two",
            Self::Admit | Self::Drain | Self::Remove | Self::Hold => {
                "the scheduler's own view of the node"
            }
        }
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
            Self::Adopt => "log in for the first time",
            Self::Drift => "look at the drift",
            Self::PowerOn => "power on",
            Self::PowerCycle => "cycle the power",
            Self::Sweep => "run the sweep",
            Self::RotateBmc => "change the BMC's password",
            Self::Hold => "hold it back from jobs",
            Self::Pair => "measure with another node",
            Self::Firmware => "set firmware and BIOS",
            Self::FirmwareLook => "look at firmware and BIOS",
        }
    }
}
