//! The cause of a recovery. The signature groups equal failures, and the breaker counts by
//! signature.

use jiff::Timestamp;

use super::begin::asked_by_drivers;
use super::unfit::Unfit;
use crate::gates::xid::Action;
use crate::gates::{GateResult, Verdict};
use crate::wire::failure::{Failure, FailureCode};

/// The part of the system blamed by a failure code.
enum Blame {
    /// The system did not answer any request: the connection failed, or the job timed out.
    Silent,
    /// The machine failed, but its system may answer: the BMC does not start the machine, a process
    /// on the node hangs, or the disks return errors.
    Machine,
    /// The failure does not concern the machine: the order cannot be built, the suite is
    /// unreadable, or the server is unreachable. No rung can fix such a failure.
    Other,
}

fn blame(code: &FailureCode) -> Blame {
    use FailureCode as Code;
    match code {
        Code::SshUnreachable | Code::SshTimeout | Code::SshLost | Code::Timeout => Blame::Silent,
        Code::BmcTimeout
        | Code::BmcUnreachable
        | Code::BmcBusy
        | Code::BmcGarbage
        | Code::BmcNothingHappened
        | Code::NodeJobLost
        | Code::StartFailed
        | Code::Stuck
        | Code::ToolTimeout
        | Code::ToolIo
        | Code::Io => Blame::Machine,
        _ => Blame::Other,
    }
}

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
    /// failed gate, or `unknown`.
    pub fn health(unfit: &Unfit) -> Self {
        Self {
            signature: format!("gate:{}", unfit.gate),
            what: format!("drained by its health check: {}", unfit.describe()),
            answers: true,
            asked: false,
            action: unfit.action,
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
        let (answers, signature) = match blame(&failure.code) {
            Blame::Silent => (false, "unreachable".to_owned()),
            Blame::Machine => (true, format!("step:{step}")),
            Blame::Other => return None,
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
        let what = reason.unwrap_or("requested").to_owned();
        Self {
            signature: "asked".into(),
            what,
            answers: true,
            asked: true,
            action: None,
        }
    }
}
