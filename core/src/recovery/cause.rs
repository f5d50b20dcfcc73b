//! What a recovery is for. Its signature says which failures are the same: the breaker counts by it.

use jiff::Timestamp;

use super::begin::{asked_by_drivers, asked_in};
use crate::gates::xid::Action;
use crate::gates::{GateResult, Verdict};
use crate::wire::node::{Failure, UNREACHABLE};

/// Failures that say that the system did not answer, whatever it was asked: those of SSH, and the end of a job's time.
const SILENT: [&str; 4] = [UNREACHABLE, "ssh_timeout", "ssh_lost", "timeout"];

/// Failures of a machine whose system may answer: its BMC does not start it, or what works on it gets stuck or meets disks that do not serve. No rung mends
/// what else fails a step: an order that cannot be built, a suite that is not understood, a server that is away.
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

/// Why a recovery begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `gate:disk.smart`, `step:reboot_test`, `asked`.
    pub signature: String,
    /// As people read it.
    pub what: String,
    /// Whether the installed system answers: rungs that need its answer are not tried without.
    pub answers: bool,
    /// By a person, who has looked: bounds are for what begins by itself.
    pub asked: bool,
    /// What the drivers ask for, where gates failed for what they said: it picks the rung that the ladder begins at. Known while one begins.
    pub action: Option<Action>,
}

impl Cause {
    /// Gates failed; the first of them stands for all.
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

    /// The health check of its scheduler found it unfit, and had it drained: by this gate, where it names one.
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

    /// It failed this gate with nodes of its pool that pass with others.
    pub fn pairs(gate: &str, what: String) -> Self {
        Self {
            signature: format!("gate:{gate}"),
            what,
            answers: true,
            asked: false,
            action: None,
        }
    }

    /// A step did not work, and not because of what it measured; nothing where that is not the machine's doing.
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

    /// A person asked for it.
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
