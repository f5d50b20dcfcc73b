//! States, wishes, purposes: the closed sets of words, and their stored form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text that is none of the words of a set; a row that holds one is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a {1}")]
pub struct UnknownWord(pub String, pub &'static str);

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every word of the set.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// As stored, sent and shown.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    other => Err(UnknownWord(other.to_owned(), $what)),
                }
            }
        }
    };
}
pub(crate) use words;

words! {
    /// Where a node is on its way.
    State, "node state" {
        /// A machine was seen, or declared and not accepted.
        Discovered = "discovered",
        Inspecting = "inspecting",
        /// Inspected, fits its profile, powered off.
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
    /// What a person or a program asked of a node. The engine acts on it; the handler only writes it down.
    Wish, "wish" {
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
        /// Compare it with its stack; nothing is changed.
        CheckDrift = "check-drift",
        PowerOn = "power-on",
        PowerOff = "power-off",
        PowerCycle = "power-cycle",
        /// Run a suite where it rests; only its record is kept.
        RunGates = "run-gates",
        /// Bring it back to its stack, jobs first.
        Converge = "converge",
        /// Write its image anew, jobs first.
        Reinstall = "reinstall",
        /// Run the pool's sweep: all of it while the node is idle, else beside its jobs.
        Sweep = "sweep",
        /// Give its BMC another password; nothing of the machine is touched.
        RotateBmc = "rotate-bmc",
    }
}

words! {
    /// Why a node is taken out of the scheduler.
    Purpose, "drain purpose" {
        /// For its stack to be installed over what it runs.
        Upgrade = "upgrade",
        /// For its image to be written anew.
        Reinstall = "reinstall",
        Repair = "repair",
        Maintenance = "maintenance",
        Release = "release",
    }
}

impl State {
    /// Whether a node may stay here for ever: no owner must act, no deadline runs.
    pub fn is_steady(self) -> bool {
        matches!(
            self,
            Self::Discovered | Self::Available | Self::InService | Self::Retired
        )
    }

    /// Whether an operation that brought a node here is over.
    pub fn is_resting(self) -> bool {
        self.is_steady() || matches!(self, Self::Quarantined | Self::Failed | Self::Maintenance)
    }

    /// Seconds a node may stay before it is stuck, unless its profile says otherwise; `None` for steady states.
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
