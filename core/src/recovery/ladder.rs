//! A ladder that is being climbed: what was tried of it, and which rung comes next.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

use super::cause::Cause;
use super::rung::Rung;
use crate::claims::HELD;
use crate::lifecycle::state::{UnknownWord, words};

words! {
    /// How a rung went.
    Outcome, "outcome of a rung" {
        /// It was done; whether it helped, the gates say.
        Done = "done",
        /// It could not be done.
        Failed = "failed",
        /// It cannot be done on this node.
        Skipped = "skipped",
    }
}

words! {
    /// How a recovery ended.
    Ended, "end of a recovery" {
        /// The node serves again: every gate of its pool passed.
        Recovered = "recovered",
        /// No rung is left.
        Spent = "spent",
        /// The breaker stopped it, or a bound.
        HeldBack = "held_back",
        /// A person stopped it, or wanted something else of the node.
        Stopped = "stopped",
        /// The node could not be brought to its gates again.
        Failed = "failed",
    }
}

/// A rung that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Tried {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub rung: Rung,
    /// `done`, `failed` or `skipped`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub outcome: Outcome,
    /// Why, where it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A recovery that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    pub cause: Cause,
    pub rungs: Vec<Rung>,
    /// So many of `rungs` are behind it, tried or passed over.
    pub tried: usize,
}

/// What a node allows, and what it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// A BMC, rather than a person, presses its button.
    pub bmc: bool,
    /// Its operating system may not be written.
    pub protected: bool,
    /// Nothing that happens by itself may change what it runs.
    pub held: bool,
}

impl Recovery {
    /// Whether a rung is left.
    pub fn has_more(&self) -> bool {
        self.tried < self.rungs.len()
    }

    /// Why a rung cannot be tried on this node; nothing where it can.
    pub fn refusal(&self, rung: Rung, means: Means) -> Option<&'static str> {
        match rung {
            _ if rung.needs_answers() && !self.cause.answers => Some("the system does not answer"),
            _ if rung.installs() && means.held => Some(HELD),
            Rung::PowerCycle if !means.bmc => Some("it has no BMC: a person presses its button"),
            Rung::Reimage if means.protected => Some("it is protected"),
            Rung::Collect
            | Rung::RestartServices
            | Rung::Reboot
            | Rung::PowerCycle
            | Rung::Reimage
            | Rung::Rma => None,
        }
    }
}
