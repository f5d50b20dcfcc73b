//! A whole run: what its results say about admission. Required gates must pass; an optional one may be skipped; a shadow's verdict is only told; a
//! waiver that still holds counts in place of a pass, for its own gate alone.

use jiff::Timestamp;

use super::gate::Suite;
use super::mode::Mode;
use super::result::{GateResult, Verdict};
use crate::profiles::HardwareProfile;

/// What a whole run of a suite says about admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuiteVerdict {
    /// Nothing blocks.
    Pass,
    /// At least one gate failed.
    Fail,
    /// None failed, but at least one has no answer that counts.
    Unknown,
}

impl SuiteVerdict {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unknown => "unknown",
        }
    }
}

/// What results are judged by.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    pub suite: &'a Suite,
    /// The node's; it may say that a gate is optional or a shadow on this model.
    pub profile: Option<&'a HardwareProfile>,
    /// Ids of the gates that were to run; all when empty.
    pub wanted: &'a [String],
    pub now: Timestamp,
}

/// Judges a run. What was to run and has no result is unknown, never a pass.
pub fn judge(by: &Judged<'_>, results: &[GateResult]) -> SuiteVerdict {
    let wanted = by
        .suite
        .gates
        .iter()
        .filter(|gate| by.wanted.is_empty() || by.wanted.contains(&gate.id));
    let said = wanted.map(|gate| {
        let result = results.iter().find(|result| result.gate == gate.id);
        counts(gate.mode(by.profile), result, by.now)
    });
    said.fold(SuiteVerdict::Pass, |sofar, one| match (sofar, one) {
        (SuiteVerdict::Fail, _) | (_, SuiteVerdict::Fail) => SuiteVerdict::Fail,
        (SuiteVerdict::Unknown, _) | (_, SuiteVerdict::Unknown) => SuiteVerdict::Unknown,
        (SuiteVerdict::Pass, SuiteVerdict::Pass) => SuiteVerdict::Pass,
    })
}

/// Whether a verdict is in the way, no waiver counted.
pub fn blocks(mode: Mode, verdict: Verdict) -> bool {
    match (mode, verdict) {
        (Mode::Shadow, _) | (_, Verdict::Pass) | (Mode::Optional, Verdict::Skipped) => false,
        (Mode::Required | Mode::Optional, Verdict::Fail | Verdict::Error)
        | (Mode::Required, Verdict::Skipped) => true,
    }
}

fn counts(mode: Mode, result: Option<&GateResult>, now: Timestamp) -> SuiteVerdict {
    if mode == Mode::Shadow {
        return SuiteVerdict::Pass;
    }
    let Some(result) = result else {
        return SuiteVerdict::Unknown;
    };
    let waived = result
        .waived
        .as_ref()
        .is_some_and(|waived| waived.until > now);
    match result.verdict {
        verdict if waived || !blocks(mode, verdict) => SuiteVerdict::Pass,
        Verdict::Fail => SuiteVerdict::Fail,
        Verdict::Pass | Verdict::Error | Verdict::Skipped => SuiteVerdict::Unknown,
    }
}
