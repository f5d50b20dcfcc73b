//! Verdict of a pair from its gate results. A pass needs a passed measurement in each direction.

use super::rounds::Pair;
use super::tally::Trial;
use crate::gates::{GateResult, Judged, Mode, SuiteVerdict, Verdict, judge};

/// Returns the verdict of one direction. If every gate was skipped, the suite passes without a
/// measurement, so the verdict is `error`.
pub fn one_way(by: &Judged<'_>, results: &[GateResult]) -> Verdict {
    let counted = |result: &&GateResult| {
        let gate = by.suite.gates.iter().find(|gate| gate.id == result.gate);
        gate.is_some_and(|gate| gate.mode(by.profile) != Mode::Shadow)
    };
    let measured = results
        .iter()
        .filter(counted)
        .any(|result| result.verdict == Verdict::Pass);
    match judge(by, results) {
        SuiteVerdict::Fail => Verdict::Fail,
        SuiteVerdict::Pass if measured => Verdict::Pass,
        SuiteVerdict::Pass | SuiteVerdict::Unknown => Verdict::Error,
    }
}

/// Returns the combined verdict of both directions.
pub fn both_ways(pair: Pair, ways: [Verdict; 2]) -> Trial {
    let verdict = match ways {
        [Verdict::Fail, _] | [_, Verdict::Fail] => Verdict::Fail,
        [Verdict::Pass, Verdict::Pass] => Verdict::Pass,
        [Verdict::Error | Verdict::Skipped, _] | [_, Verdict::Error | Verdict::Skipped] => {
            Verdict::Error
        }
    };
    Trial { pair, verdict }
}
