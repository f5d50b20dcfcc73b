//! The steps of each state. A step is a single job; its name is unique within a stay in a state.

use crate::words;

words! {
    /// A step on a node's way.
    #[derive(PartialOrd, Ord)]
    Step, "step" {
        /// Boots the live image and checks the machine's identity.
        BootLive = "boot_live",
        Inventory = "inventory",
        PowerOff = "power_off",
        WriteImage = "write_image",
        /// Boots the installed OS.
        BootDisk = "boot_disk",
        Converge = "converge",
        /// Reboots for items active only after a reboot.
        Reboot = "reboot",
        /// Converges once more; must find no difference.
        Recheck = "recheck",
        Gates = "gates",
        /// The gate requiring a node to survive a reboot.
        RebootTest = "reboot_test",
        GatesAfterReboot = "gates_after_reboot",
        Admit = "admit",
        Drain = "drain",
        /// Removes the node from the scheduler's configuration.
        Remove = "remove",
        Wipe = "wipe",
        /// Logs in to a machine installed by somebody else.
        Adopt = "adopt",
        /// Reports the changes of a converge, without making changes.
        Drift = "drift",
        /// Powers on at a person's request.
        PowerOn = "power_on",
        /// Power-cycles through the firmware at a person's request.
        PowerCycle = "power_cycle",
        /// Runs the pool's sweep: beside jobs, or all gates while the scheduler holds the node.
        Sweep = "sweep",
        /// Changes the BMC password at a person's request.
        RotateBmc = "rotate_bmc",
        /// Asks the scheduler to start no jobs during a measurement; the node stays in service.
        Hold = "hold",
        /// Measures the path to another node, in each direction.
        Pair = "pair",
        /// Sets firmware and BIOS to the stack's values, through the BMC.
        Firmware = "firmware",
        /// Reads firmware and BIOS values from the BMC, without changes.
        FirmwareLook = "firmware_look",
    }
}

words! {
    /// The state of a job, the work of one step.
    JobState, "state of a job" {
        Queued = "queued",
        Leased = "leased",
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

impl JobState {
    /// Returns whether the job is not finished.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Queued | Self::Leased)
    }
}

impl Step {
    /// Returns the time limit of an attempt in seconds. Servers with many DIMMs train memory for
    /// ten minutes and more before the firmware shows any output.
    pub fn timeout_s(self) -> u64 {
        match self {
            // Only idle nodes are measured. A node with longer jobs keeps its jobs and is skipped.
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
            // Several updates in sequence, and a reboot through the firmware.
            Self::Firmware => 4 * 60 * 60,
            Self::Wipe => 24 * 60 * 60,
            Self::Drain => 7 * 24 * 60 * 60,
        }
    }

    /// Returns the number of rounds before the phase fails.
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

    /// Returns whether the step starts the machine and needs a share of the rack's power.
    pub fn powers_on(self) -> bool {
        matches!(
            self,
            Self::BootLive | Self::BootDisk | Self::PowerOn | Self::PowerCycle | Self::Firmware
        )
    }

    /// Returns whether a running step may be stopped. A machine reset during a firmware update may
    /// never start again.
    pub fn may_be_stopped(self) -> bool {
        self != Self::Firmware
    }

    /// Returns whether the step destroys data on the disks. Such steps never run on a protected
    /// node.
    pub fn destroys(self) -> bool {
        matches!(self, Self::WriteImage | Self::Wipe)
    }

    /// Returns whether the step measures the installed software, without changes.
    pub fn measures(self) -> bool {
        matches!(
            self,
            Self::Gates | Self::GatesAfterReboot | Self::Sweep | Self::Pair
        )
    }

    /// Returns whether the step may need a person at the machine without a BMC.
    pub fn needs_a_hand(self) -> bool {
        matches!(self, Self::BootLive | Self::BootDisk | Self::PowerOff)
    }

    /// Returns the observation that decides the outcome of an attempt after contact with its worker
    /// was lost.
    pub fn observation(self) -> &'static str {
        match self {
            Self::BootLive => "the boot's report and the BMC's power state",
            Self::PowerOff | Self::PowerOn | Self::PowerCycle => "the BMC's power state",
            Self::BootDisk | Self::Reboot | Self::RebootTest => "the node's boot id",
            Self::Inventory | Self::Adopt | Self::Drift => "another check of the node",
            Self::RotateBmc => "a login with each of the BMC's two passwords",
            Self::Firmware | Self::FirmwareLook => "the BMC's report of firmware and BIOS",
            Self::WriteImage
            | Self::Converge
            | Self::Recheck
            | Self::Gates
            | Self::GatesAfterReboot
            | Self::Sweep
            | Self::Wipe => "the job's spool on the node",
            Self::Pair => "another measurement of the pair",
            Self::Admit | Self::Drain | Self::Remove | Self::Hold => {
                "the scheduler's own view of the node"
            }
        }
    }

    /// Returns the text shown while the step runs.
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
            Self::Drift => "check the drift",
            Self::PowerOn => "power on",
            Self::PowerCycle => "cycle the power",
            Self::Sweep => "run the sweep",
            Self::RotateBmc => "change the BMC's password",
            Self::Hold => "hold the node back from jobs",
            Self::Pair => "measure with another node",
            Self::Firmware => "set firmware and BIOS",
            Self::FirmwareLook => "read firmware and BIOS",
        }
    }
}
