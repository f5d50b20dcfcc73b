//! A ladder in progress: the rungs already tried, and the next rung.

use serde::{Deserialize, Serialize};

use super::cause::Cause;
use super::rung::Rung;
use crate::claims::HELD;
use crate::words;

words! {
    /// The outcome of a rung.
    Outcome, "outcome of a rung" {
        /// The rung was executed; the gates decide whether the fault is gone.
        Done = "done",
        /// The rung was attempted and failed.
        Failed = "failed",
        /// The rung is impossible on this node.
        Skipped = "skipped",
    }
}

words! {
    /// The end of a recovery.
    Ended, "end of a recovery" {
        /// The node serves again, because every gate of its pool passed.
        Recovered = "recovered",
        /// No rung is left.
        Spent = "spent",
        /// The breaker or another bound stopped the recovery.
        HeldBack = "held_back",
        /// A person stopped the recovery, or requested another action for the node.
        Stopped = "stopped",
        /// The node could not be brought back to its gates.
        Failed = "failed",
    }
}

/// A tried rung.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Tried {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub rung: Rung,
    /// `done`, `failed` or `skipped`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub outcome: Outcome,
    /// The reason, if the rung was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A recovery under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    pub cause: Cause,
    pub rungs: Vec<Rung>,
    /// Number of `rungs` already tried or skipped.
    pub tried: usize,
}

/// Capabilities and restrictions of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// Whether a BMC controls the power; otherwise a person presses the button.
    pub bmc: bool,
    /// The operating system disk must not be overwritten.
    pub protected: bool,
    /// The claim is on hold: automation must not change the node's software.
    pub held: bool,
}

impl Recovery {
    /// Returns whether a rung is left.
    pub fn has_more(&self) -> bool {
        self.tried < self.rungs.len()
    }

    /// Returns why a rung cannot be tried on this node, or `None` if the rung is possible.
    pub fn refusal(&self, rung: Rung, means: Means) -> Option<&'static str> {
        match rung {
            _ if rung.needs_answers() && !self.cause.answers => Some("the system does not answer"),
            _ if rung.installs() && means.held => Some(HELD),
            Rung::PowerCycle if !means.bmc => {
                Some("the node has no BMC: a person must press the power button")
            }
            Rung::Reimage if means.protected => Some("the node is protected"),
            Rung::Collect
            | Rung::RestartServices
            | Rung::Reboot
            | Rung::PowerCycle
            | Rung::Reimage
            | Rung::Rma => None,
        }
    }
}
