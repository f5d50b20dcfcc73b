//! What a recovery is for. Its signature says which failures are the same: the breaker counts by it.

use jiff::Timestamp;

use super::begin::asked_by_drivers;
use super::unfit::Unfit;
use crate::gates::xid::Action;
use crate::gates::{GateResult, Verdict};
use crate::wire::failure::{Failure, FailureCode};

/// What a failure says about the machine.
enum Blame {
    /// The system did not answer, whatever was asked: the connection failed, or the job's time ended.
    Silent,
    /// The machine failed and its system may answer: the BMC does not start the machine, a process on
    /// the node hangs, or the disks return errors.
    Machine,
    /// The failure says nothing about the machine: the order cannot be built, the suite cannot be read,
    /// the server is away. No rung can fix such a failure.
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
    pub fn health(unfit: &Unfit) -> Self {
        Self {
            signature: format!("gate:{}", unfit.gate),
            what: format!("its health check had it drained: {}", unfit.describe()),
            answers: true,
            asked: false,
            action: unfit.action,
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
