//! States, requested actions and purposes: closed sets of words, with their stored form.

use crate::words;

words! {
    /// The position of a node on its way.
    #[derive(PartialOrd, Ord)]
    State, "node state" {
        /// A machine was seen or declared, and not accepted yet.
        Discovered = "discovered",
        Inspecting = "inspecting",
        /// Inspected, matches its profile, powered off.
        Available = "available",
        Imaging = "imaging",
        Installing = "installing",
        Validating = "validating",
        Admitting = "admitting",
        InService = "in_service",
        Draining = "draining",
        Repairing = "repairing",
        Quarantined = "quarantined",
        Failed = "failed",
        Wiping = "wiping",
        Maintenance = "maintenance",
        Retired = "retired",
    }
}

words! {
    /// An action requested for a node by a person or a program. The request handler only records
    /// the action, and the engine executes it.
    #[derive(PartialOrd, Ord)]
    Action, "requested action" {
        Accept = "accept",
        Adopt = "adopt",
        Reject = "reject",
        Inspect = "inspect",
        Release = "release",
        Retry = "retry",
        Quarantine = "quarantine",
        Recover = "recover",
        Wipe = "wipe",
        Drain = "drain",
        Undrain = "undrain",
        Maintain = "maintain",
        Resume = "resume",
        Retire = "retire",
        Reinstate = "reinstate",
        ReplaceParts = "replace-parts",
        /// Compares the node with its stack, without changes.
        CheckDrift = "check-drift",
        PowerOn = "power-on",
        PowerOff = "power-off",
        PowerCycle = "power-cycle",
        /// Runs a suite on a resting node; only the results are kept.
        RunGates = "run-gates",
        /// Converges the node to its stack, after its jobs end.
        Converge = "converge",
        /// Writes the image again, after the node's jobs end.
        Reinstall = "reinstall",
        /// Runs the pool's sweep: all gates on an idle node, otherwise the gates allowed beside
        /// jobs.
        Sweep = "sweep",
        /// Changes the BMC password; the host is not affected.
        RotateBmc = "rotate-bmc",
    }
}

words! {
    /// The reason for taking a node out of the scheduler.
    Purpose, "drain purpose" {
        /// Installs the stack over the running system.
        Upgrade = "upgrade",
        /// Writes the image again.
        Reinstall = "reinstall",
        Repair = "repair",
        Maintenance = "maintenance",
        Release = "release",
    }
}

impl State {
    /// Returns whether a node may stay in the state forever: no person must act, and no deadline
    /// runs.
    pub fn is_steady(self) -> bool {
        matches!(
            self,
            Self::Discovered | Self::Available | Self::InService | Self::Retired
        )
    }

    /// Returns whether an operation that brought the node here is finished.
    pub fn is_resting(self) -> bool {
        self.is_steady() || matches!(self, Self::Quarantined | Self::Failed | Self::Maintenance)
    }

    /// Returns the seconds until a node in the state is stuck, unless its profile sets another
    /// value; `None` for steady states.
    pub fn default_deadline_s(self) -> Option<u64> {
        match self {
            Self::Discovered | Self::Available | Self::InService | Self::Retired => None,
            Self::Inspecting | Self::Admitting => Some(30 * 60),
            Self::Imaging | Self::Installing | Self::Repairing => Some(60 * 60),
            Self::Validating => Some(2 * 60 * 60),
            Self::Failed | Self::Quarantined | Self::Maintenance => Some(3 * 24 * 60 * 60),
            Self::Draining => Some(24 * 60 * 60),
            Self::Wiping => Some(24 * 60 * 60),
        }
    }
}
