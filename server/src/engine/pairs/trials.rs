//! The results of measurements: a verdict for each pair with a finished job.

use muster_core::fabric::{Trial, both_ways, one_way};
use muster_core::gates::{GateResult, Judged, Verdict};
use muster_core::lifecycle::steps::JobState;
use muster_core::wire::pair::PairWay;
use muster_core::wire::result::JobResult;
use sqlx::PgConnection;

use super::run::{Run, cut, pair_of};
use crate::db;
use crate::db::pairs::ends::EndRow;
use crate::db::pairs::trials::{Settled, TrialRow};
use crate::error::Error;

/// Stores the results of finished measurements. Returns whether there was a result.
pub(super) async fn settle(conn: &mut PgConnection, run: &Run<'_>) -> Result<bool, Error> {
    let mut any = false;
    for trial in run.trials.iter().filter(|trial| trial.verdict.is_none()) {
        let Some(settled) = find_result(run, trial) else {
            continue;
        };
        db::pairs::trials::settle(conn, run.row.id, trial, &settled, run.now).await?;
        any = true;
    }
    Ok(any)
}

/// A measurement without an answer blames no node.
pub(super) fn build_unknown(why: &str) -> Settled {
    Settled {
        verdict: Verdict::Error,
        gate: None,
        why: Some(cut(why)),
        ways: Vec::new(),
    }
}

/// Returns the result of a measurement. `None` while the job is under way. A lost, stopped or
/// partly answered measurement is an error.
fn find_result(run: &Run<'_>, trial: &TrialRow) -> Option<Settled> {
    let left = [trial.a, trial.b].into_iter().find_map(|at| {
        let end = run.end(at)?;
        let why = end.left_out.as_ref()?;
        Some(format!("{} is not measured any more: {why}", end.name))
    });
    let error = |why: String| Some(build_unknown(&why));
    match (trial.job, trial.state, &trial.result) {
        (Some(_), Some(JobState::Queued | JobState::Leased), _) => None,
        (None, _, _) => left.and_then(error),
        (Some(_), Some(JobState::Succeeded), Some(result)) => {
            if let Some(why) = left {
                // A node that left the run had other work in the meantime, so the result does not
                // measure the path.
                error(why)
            } else if let JobResult::Paired { ways } = &result.0 {
                Some(judge(run, trial, ways))
            } else {
                error("the agent answered with something else".into())
            }
        }
        (Some(_), Some(JobState::Failed), _) => error(trial.failure.clone().unwrap_or_default()),
        (Some(_), _, _) => error("it was stopped".into()),
    }
}

fn judge(run: &Run<'_>, trial: &TrialRow, ways: &[PairWay]) -> Settled {
    let ways: Vec<PairWay> = ways.iter().map(|way| keep_requested(run, way)).collect();
    let (Some(a), Some(b), [there, back]) = (run.end(trial.a), run.end(trial.b), &ways[..]) else {
        return build_unknown("the agent's answer is not both ways of the two");
    };
    let connects = |way: &PairWay, from: &EndRow, to: &EndRow| {
        Some(way.from) == from.node && Some(way.to) == to.node
    };
    if !(connects(there, a, b) && connects(back, b, a)) {
        return build_unknown("the agent's answer is of other nodes");
    }
    let judge_way = |end: &EndRow, way: &PairWay| {
        let by = Judged {
            suite: &run.row.suite,
            profile: end.profile.as_ref().map(|json| &json.0),
            wanted: &[],
            now: run.now,
        };
        one_way(&by, &way.results)
    };
    let Trial { verdict, .. } =
        both_ways(pair_of(trial), [judge_way(a, there), judge_way(b, back)]);
    let sentences = [
        describe_failures(a, b, there),
        describe_failures(b, a, back),
    ]
    .concat();
    let mut results = there.results.iter().chain(&back.results);
    let failed = results.find(|result| is_counted(result) && result.verdict == Verdict::Fail);
    Settled {
        verdict,
        gate: failed.map(|result| result.gate.clone()),
        why: (verdict != Verdict::Pass).then(|| cut(&sentences.join("; "))),
        ways,
    }
}

/// Returns the results of requested gates. A waiver in the answer is dropped, because only the
/// server waives, and gates of pairs have no waivers.
fn keep_requested(run: &Run<'_>, way: &PairWay) -> PairWay {
    let gates = &run.row.suite.gates;
    let result = |id: &str| way.results.iter().find(|result| result.gate == id);
    let requested = gates.iter().filter_map(|gate| result(&gate.id));
    let results = requested
        .map(|result| GateResult {
            waived: None,
            ..result.clone()
        })
        .collect();
    PairWay {
        results,
        ..way.clone()
    }
}

fn is_counted(result: &GateResult) -> bool {
    !result.shadow
}

/// Returns a sentence for each failed gate of a direction.
fn describe_failures(from: &EndRow, to: &EndRow, way: &PairWay) -> Vec<String> {
    let wrong = way
        .results
        .iter()
        .filter(|result| is_counted(result) && result.verdict != Verdict::Pass);
    wrong
        .map(|result| {
            format!(
                "{} to {}: gate {}: {}",
                from.name, to.name, result.gate, result.reason
            )
        })
        .collect()
}
