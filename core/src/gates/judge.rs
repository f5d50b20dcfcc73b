//! Judges a whole run for admission. Required gates must pass, and optional gates may be skipped.
//! The verdict of a shadow gate is only reported. A valid waiver counts as a pass for its own gate.

use jiff::Timestamp;

use super::gate::Suite;
use super::mode::Mode;
use super::result::{GateResult, Verdict};
use crate::profiles::HardwareProfile;
use crate::words;

words! {
    /// The admission verdict of a whole suite run.
    SuiteVerdict, "verdict of a suite" {
        /// No gate blocks admission.
        Pass = "pass",
        /// At least one gate failed.
        Fail = "fail",
        /// No gate failed, but at least one gate has no usable result.
        Unknown = "unknown",
    }
}

/// The rules for judging results.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    pub suite: &'a Suite,
    /// The node's hardware profile, which may declare a gate optional or shadow for the model.
    pub profile: Option<&'a HardwareProfile>,
    /// Ids of the gates requested for the run; empty means all gates.
    pub wanted: &'a [String],
    pub now: Timestamp,
}

/// Judges a run. A requested gate without a result makes the verdict unknown, never a pass.
pub fn judge(by: &Judged<'_>, results: &[GateResult]) -> SuiteVerdict {
    let wanted = by
        .suite
        .gates
        .iter()
        .filter(|gate| by.wanted.is_empty() || by.wanted.contains(&gate.id));
    let said = wanted.map(|gate| {
        let result = results.iter().find(|result| result.gate == gate.id);
        judge_result(gate.mode(by.profile), result, by.now)
    });
    said.fold(SuiteVerdict::Pass, |sofar, one| match (sofar, one) {
        (SuiteVerdict::Fail, _) | (_, SuiteVerdict::Fail) => SuiteVerdict::Fail,
        (SuiteVerdict::Unknown, _) | (_, SuiteVerdict::Unknown) => SuiteVerdict::Unknown,
        (SuiteVerdict::Pass, SuiteVerdict::Pass) => SuiteVerdict::Pass,
    })
}

/// Returns whether a verdict blocks admission, before waivers are applied.
pub fn blocks(mode: Mode, verdict: Verdict) -> bool {
    match (mode, verdict) {
        (Mode::Shadow, _) | (_, Verdict::Pass) | (Mode::Optional, Verdict::Skipped) => false,
        (Mode::Required | Mode::Optional, Verdict::Fail | Verdict::Error)
        | (Mode::Required, Verdict::Skipped) => true,
    }
}

fn judge_result(mode: Mode, result: Option<&GateResult>, now: Timestamp) -> SuiteVerdict {
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
