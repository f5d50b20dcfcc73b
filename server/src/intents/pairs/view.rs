//! A run of pairs as returned to readers: the nodes with their verdicts, and the results of each
//! pair.

use crate::db::pairs::runs::{Ending, RunRow};
use muster_api::pairs::{MeasuredPair, MeasuredWay, PairEnd, PairRun};
use muster_core::fabric::{EdgeVerdict, EndVerdict, Verdicts};
use muster_core::gates::Verdict;
use muster_core::ids::OperationId;
use sqlx::PgConnection;

use crate::db;
use crate::db::pairs::ends::EndRow;
use crate::db::pairs::trials::MeasuredRow;
use crate::error::Error;

/// Loads a run, without the results of each pair.
pub(crate) async fn load_run(
    conn: &mut PgConnection,
    pool: &str,
    row: RunRow,
) -> Result<PairRun, Error> {
    let rows = db::pairs::ends::list(conn, OperationId(row.id)).await?;
    let names: Vec<String> = rows
        .iter()
        .filter(|end| end.position.is_some())
        .map(|end| end.name.clone())
        .collect();
    let found = row.verdicts.as_ref().map(|json| &json.0);
    Ok(PairRun {
        id: row.id,
        pool: pool.to_owned(),
        suite: row.suite,
        actor: row.actor,
        state: row.ended.map_or("running", Ending::as_str).to_owned(),
        begun_at: row.begun_at,
        deadline: row.deadline_at,
        ended_at: row.ended_at.map(|at| at.to_jiff()),
        beyond: u32::try_from(row.beyond).unwrap_or(0),
        findings: found
            .map(|found| found.sentences(&names))
            .unwrap_or_default(),
        ends: rows
            .into_iter()
            .map(|end| describe_end(end, found))
            .collect(),
        pairs: None,
        evidence_hidden: false,
    })
}

/// A node of the run with its verdict.
fn describe_end(end: EndRow, found: Option<&Verdicts>) -> PairEnd {
    let at = end.position.and_then(|at| usize::try_from(at).ok());
    let verdict = match at.and_then(|at| found?.ends.get(at)) {
        Some(EndVerdict::Good) => "good",
        Some(EndVerdict::Blamed { .. }) => "blamed",
        None if end.left_out.is_some() => "left_out",
        Some(EndVerdict::Unknown { .. }) | None => "unknown",
    };
    PairEnd {
        verdict: verdict.to_owned(),
        why: end.blamed.or(end.left_out),
        node: end.name,
    }
}

/// Loads the results of each pair of a run.
pub(crate) async fn load_pairs(
    conn: &mut PgConnection,
    run: &PairRun,
    found: Option<&Verdicts>,
) -> Result<Vec<MeasuredPair>, Error> {
    let rows = db::pairs::trials::list_measured(conn, run.id).await?;
    let ends: Vec<&str> = run.ends.iter().map(|end| end.node.as_str()).collect();
    Ok(rows
        .into_iter()
        .map(|row| describe_pair(row, found, &ends))
        .collect())
}

/// Renders the results of a pair. `ends` lists the measured nodes first, in the order of
/// `db::pairs::ends::list`.
fn describe_pair(row: MeasuredRow, found: Option<&Verdicts>, ends: &[&str]) -> MeasuredPair {
    let is = |at: usize, name: &str| ends.get(at) == Some(&name);
    let edge = found
        .into_iter()
        .flat_map(|found| &found.edges)
        .find(|edge| is(edge.pair.a, &row.a) && is(edge.pair.b, &row.b));
    let failed = row.verdict == Some(Verdict::Fail);
    let edge = edge.filter(|_| failed).map(|edge| match edge.verdict {
        EdgeVerdict::Blamed => "blamed",
        EdgeVerdict::Explained { .. } => "explained",
        EdgeVerdict::Unknown => "unknown",
    });
    let directions = [(&row.a, &row.b), (&row.b, &row.a)];
    let ways = row.ways.map(|json| json.0).unwrap_or_default();
    let ways = directions.into_iter().zip(ways);
    MeasuredPair {
        round: u32::try_from(row.round).unwrap_or(0) + 1,
        ways: ways
            .map(|((from, to), way)| MeasuredWay {
                from: from.clone(),
                to: to.clone(),
                results: way.results,
            })
            .collect(),
        verdict: row.verdict.map(|verdict| verdict.to_string()),
        edge: edge.map(str::to_owned),
        why: row.why,
        finished_at: row.finished_at.map(|at| at.to_jiff()),
        a: row.a.clone(),
        b: row.b.clone(),
    }
}
