//! Measurements between two nodes of a run. Each measurement begins with its round and is settled
//! by the result of its job.

use muster_core::lifecycle::steps::JobState;
use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::fabric::Pair;
use muster_core::gates::{Suite, Verdict};
use muster_core::ids::{JobId, NodeId, OperationId};
use muster_core::wire::pair::PairWay;
use muster_core::wire::result::JobResult;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

/// A measurement, as input for the decisions of the run.
#[derive(Clone, Debug)]
pub struct TrialRow {
    pub round: i32,
    pub a: i32,
    pub b: i32,
    pub verdict: Option<Verdict>,
    pub gate: Option<String>,
    /// The job of an unsettled measurement. Its state and result follow in `state`, `result` and
    /// `failure`.
    pub job: Option<JobId>,
    pub state: Option<JobState>,
    /// Cancellation was requested from the worker.
    pub cancel: bool,
    pub result: Option<Json<JobResult>>,
    pub failure: Option<String>,
}

/// Lists the measurements of a run, in order of rounds.
///
/// # Errors
/// When a stored result cannot be parsed.
pub async fn list(conn: &mut PgConnection, run: OperationId) -> Result<Vec<TrialRow>, Error> {
    Ok(sqlx::query_as!(
        TrialRow,
        r#"SELECT t.round, t.a, t.b, t.verdict, t.gate, t.job_id AS "job: JobId", j.state AS "state?", COALESCE(j.cancel, false) AS "cancel!", j.result AS "result?: Json<JobResult>",
                  j.failure ->> 'message' AS failure
           FROM pair_trials t LEFT JOIN jobs j ON j.id = t.job_id AND t.verdict IS NULL
           WHERE t.run_id = $1 ORDER BY t.round, t.a"#,
        run as OperationId,
    )
    .fetch_all(conn)
    .await?)
}

/// Inserts the measurements of a new round.
pub async fn insert(
    conn: &mut PgConnection,
    run: OperationId,
    round: usize,
    pairs: &[Pair],
    now: Timestamp,
) -> Result<(), Error> {
    let place = |end: usize| i32::try_from(end).unwrap_or(i32::MAX);
    let a: Vec<i32> = pairs.iter().map(|pair| place(pair.a)).collect();
    let b: Vec<i32> = pairs.iter().map(|pair| place(pair.b)).collect();
    sqlx::query!(
        "INSERT INTO pair_trials (run_id, round, a, b, begun_at)
         SELECT $1, $2, pair.a, pair.b, $5 FROM unnest($3::integer[], $4::integer[]) AS pair (a, b)",
        run as OperationId,
        i32::try_from(round).unwrap_or(i32::MAX),
        &a,
        &b,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The outcome of a measurement.
#[derive(Clone, Debug)]
pub struct Settled {
    pub verdict: Verdict,
    /// The first failed gate.
    pub gate: Option<String>,
    pub why: Option<String>,
    pub ways: Vec<PairWay>,
}

/// Stores the outcome of an unsettled measurement.
pub async fn settle(
    conn: &mut PgConnection,
    run: OperationId,
    trial: &TrialRow,
    settled: &Settled,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE pair_trials SET verdict = $4, gate = $5, why = $6, ways = $7, finished_at = $8
         WHERE run_id = $1 AND round = $2 AND a = $3 AND verdict IS NULL",
        run as OperationId,
        trial.round,
        trial.a,
        settled.verdict.as_str(),
        settled.gate,
        settled.why,
        Json(&settled.ways) as _,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Input for the order of a measurement, besides the two nodes.
#[derive(Clone, Debug)]
pub struct OrderRow {
    /// The node that starts listening first.
    pub other: Option<NodeId>,
    pub suite: Json<Suite>,
    pub variables: Json<BTreeMap<String, String>>,
}

/// Returns the measurement of a job. `None`: the measurement is settled or the run has ended.
///
/// # Errors
/// When the stored suite cannot be parsed.
pub async fn find_order(conn: &mut PgConnection, job: JobId) -> Result<Option<OrderRow>, Error> {
    Ok(sqlx::query_as!(
        OrderRow,
        r#"SELECT b.node_id AS "other: NodeId", r.suite AS "suite: Json<Suite>", r.variables AS "variables: Json<BTreeMap<String, String>>"
           FROM pair_trials t JOIN pair_runs r ON r.id = t.run_id JOIN pair_ends b ON b.run_id = t.run_id AND b.position = t.b
           WHERE t.job_id = $1 AND t.verdict IS NULL AND r.ended_at IS NULL"#,
        job as JobId,
    )
    .fetch_optional(conn)
    .await?)
}

/// A measurement as shown to people.
#[derive(Clone, Debug)]
pub struct MeasuredRow {
    pub round: i32,
    pub a: String,
    pub b: String,
    pub verdict: Option<Verdict>,
    pub why: Option<String>,
    pub ways: Option<Json<Vec<PairWay>>>,
    pub finished_at: Option<jiff_sqlx::Timestamp>,
}

/// Lists the measurements of a run with node names, in order of rounds.
///
/// # Errors
/// When a stored result cannot be parsed.
pub async fn list_measured(conn: &mut PgConnection, run: Uuid) -> Result<Vec<MeasuredRow>, Error> {
    Ok(sqlx::query_as!(
        MeasuredRow,
        r#"SELECT t.round, a.name AS a, b.name AS b, t.verdict, t.why, t.ways AS "ways: Json<Vec<PairWay>>", t.finished_at
           FROM pair_trials t JOIN pair_ends a ON a.run_id = t.run_id AND a.position = t.a
           JOIN pair_ends b ON b.run_id = t.run_id AND b.position = t.b
           WHERE t.run_id = $1 ORDER BY t.round, t.a"#,
        run,
    )
    .fetch_all(conn)
    .await?)
}
