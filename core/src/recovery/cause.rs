//! The cause of a recovery. The signature groups equal failures, and the breaker counts by
//! signature.

use jiff::Timestamp;

use super::begin::{asked_by_drivers, asked_in};
use crate::gates::xid::Action;
use crate::gates::{GateResult, Verdict};
use crate::wire::node::{Failure, UNREACHABLE};

/// Failure codes of an unresponsive system: SSH failures, and the timeout of a job.
const SILENT: [&str; 4] = [UNREACHABLE, "ssh_timeout", "ssh_lost", "timeout"];

/// Failure codes of the machine while the system may still answer: the BMC does not start the
/// machine, or a tool hangs or meets failing disks. Other step failures are not repairable by a
/// rung: an order that cannot be built, an unreadable suite, or an unreachable server.
const OF_MACHINES: [&str; 11] = [
    "bmc_timeout",
    "bmc_unreachable",
    "bmc_busy",
    "bmc_garbage",
    "bmc_nothing_happened",
    "node_job_lost",
    "start_failed",
    "stuck",
    "tool_timeout",
    "tool_io",
    "io",
];

/// The cause of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Signature: `gate:disk.smart`, `step:reboot_test`, `asked`.
    pub signature: String,
    /// Description shown to users.
    pub what: String,
    /// Whether the installed system answers. Rungs that need the system are skipped otherwise.
    pub answers: bool,
    /// Whether a person requested the recovery after an inspection. Bounds apply only to automatic
    /// recoveries.
    pub asked: bool,
    /// The action requested by the drivers, if gates failed on a driver message. The action selects
    /// the first rung of the ladder and is known only at the beginning.
    pub action: Option<Action>,
}

impl Cause {
    /// Builds the cause for failed gates. The first failed gate gives the signature.
    pub fn gates(results: &[GateResult], now: Timestamp, what: String) -> Self {
        let counts = |result: &&GateResult| {
            let waived = result
                .waived
                .as_ref()
                .is_some_and(|waived| waived.until > now);
            result.verdict == Verdict::Fail && !result.shadow && !waived
        };
        let gate = results
            .iter()
            .find(counts)
            .map_or("unknown", |result| result.gate.as_str());
        let action = asked_by_drivers(results, |result| counts(&result));
        Self {
            signature: format!("gate:{gate}"),
            what,
            answers: true,
            asked: false,
            action,
        }
    }

    /// Builds the cause for a node drained by its scheduler's health check. The signature names the
    /// failed gate if known.
    pub fn health(gate: &str, what: String) -> Self {
        let action = asked_in(&what);
        Self {
            signature: format!("gate:{gate}"),
            what,
            answers: true,
            asked: false,
            action,
        }
    }

    /// Builds the cause for a node that fails a pair gate with nodes of its pool, while those nodes
    /// pass with others.
    pub fn pairs(gate: &str, what: String) -> Self {
        Self {
            signature: format!("gate:{gate}"),
            what,
            answers: true,
            asked: false,
            action: None,
        }
    }

    /// Builds the cause for a failed step, for reasons other than a measured value. Returns `None`
    /// if the machine did not cause the failure.
    pub fn step(step: &str, failure: &Failure) -> Option<Self> {
        let code = failure.code.as_str();
        let answers = !SILENT.contains(&code);
        if answers && !OF_MACHINES.contains(&code) {
            return None;
        }
        let signature = if answers {
            format!("step:{step}")
        } else {
            "unreachable".to_owned()
        };
        Some(Self {
            signature,
            what: failure.message.clone(),
            answers,
            asked: false,
            action: None,
        })
    }

    /// Builds the cause for a recovery requested by a person.
    pub fn asked(reason: Option<&str>) -> Self {
        let what = reason.unwrap_or("asked for").to_owned();
        Self {
            signature: "asked".into(),
            what,
            answers: true,
            asked: true,
            action: None,
        }
    }
}
