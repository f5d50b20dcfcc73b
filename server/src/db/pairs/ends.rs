//! Nodes of a run of pairs: candidates, participants, and nodes left out with the reason.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::clusters::slurm::OUR_REASON;
use muster_core::ids::{JobId, NodeId, ObjectId, OperationId};
use muster_core::lifecycle::state::{Action, State};
use muster_core::lifecycle::steps::{JobState, Step};
use muster_core::profiles::HardwareProfile;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

/// A node claimed by a pool, with the conditions preventing a measurement.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub id: NodeId,
    pub name: String,
    pub site: ObjectId,
    pub site_name: String,
    pub state: State,
    pub action: Option<Action>,
    pub protected: bool,
    pub releasing: bool,
    pub installed: bool,
    /// A job of the node is queued or running.
    pub busy: bool,
    /// Another run or a sweep has not yet returned the node to the scheduler.
    pub held: bool,
    /// The scheduler gives the node no jobs. Contains the scheduler's state and reason.
    pub out: Option<String>,
}

/// Lists the nodes of a pool, or only the named ones. The node with the oldest measurement comes
/// first.
pub async fn list_candidates(
    conn: &mut PgConnection,
    pool: ObjectId,
    named: Option<&[String]>,
    limit: i64,
) -> Result<Vec<Candidate>, Error> {
    Ok(sqlx::query_as!(
        Candidate,
        r#"SELECT n.id AS "id: NodeId", n.name, n.site_id AS "site: ObjectId", site.name AS site_name, n.state, n.wish AS action, n.protected,
                  c.state = 'releasing' AS "releasing!", n.os_host_key IS NOT NULL AS "installed!",
                  EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id AND j.state IN ('queued', 'leased')) AS "busy!",
                  n.held_back OR EXISTS (SELECT FROM pair_ends e WHERE e.node_id = n.id AND e.back_at IS NULL) AS "held!",
                  (SELECT concat_ws(': ', o.state, o.reason) FROM scheduler_outs o WHERE o.node_id = n.id
                       AND (n.state = 'in_service' AND starts_with(o.reason, $4) AND o.seen_at <= n.entered_at) IS NOT TRUE) AS out
           FROM claims c JOIN nodes n ON n.id = c.node_id JOIN objects site ON site.id = n.site_id
           LEFT JOIN LATERAL (SELECT max(r.begun_at) AS at FROM pair_ends e JOIN pair_runs r ON r.id = e.run_id
                              WHERE e.node_id = n.id AND e.position IS NOT NULL) measured ON true
           WHERE c.pool_id = $1 AND c.state <> 'released' AND ($2::text[] IS NULL OR n.name = ANY ($2))
           ORDER BY measured.at NULLS FIRST, n.name LIMIT $3"#,
        pool as ObjectId,
        named as _,
        limit,
        OUR_REASON,
    )
    .fetch_all(conn)
    .await?)
}

/// Stores the participants of a run, and the nodes left out with their reasons.
///
/// # Errors
/// When a node is in another run.
pub async fn insert(
    conn: &mut PgConnection,
    run: OperationId,
    nodes: &[(NodeId, &str)],
    left: &[(NodeId, &str, String)],
    now: Timestamp,
) -> Result<(), Error> {
    let ids: Vec<Uuid> = nodes
        .iter()
        .map(|(id, _)| id.0)
        .chain(left.iter().map(|(id, ..)| id.0))
        .collect();
    let names: Vec<String> = nodes
        .iter()
        .map(|(_, name)| *name)
        .chain(left.iter().map(|(_, name, _)| *name))
        .map(str::to_owned)
        .collect();
    let whys: Vec<Option<String>> = nodes
        .iter()
        .map(|_| None)
        .chain(left.iter().map(|(.., why)| Some(why.clone())))
        .collect();
    sqlx::query!(
        "INSERT INTO pair_ends (run_id, node_id, name, left_out, back_at)
         SELECT $1, one.id, one.name, one.why, CASE WHEN one.why IS NOT NULL THEN $5::timestamptz END
         FROM unnest($2::uuid[], $3::text[], $4::text[]) AS one (id, name, why)",
        run as OperationId,
        &ids,
        &names,
        &whys as _,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Makes the nodes with remaining work in a run due. Nodes are locked in order of id, before any
/// related row is written.
pub async fn wake(conn: &mut PgConnection, run: OperationId, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "WITH held AS (
             SELECT n.id FROM nodes n JOIN pair_ends e ON e.node_id = n.id WHERE e.run_id = $1 AND e.back_at IS NULL
             ORDER BY n.id FOR NO KEY UPDATE OF n)
         UPDATE nodes SET due_at = LEAST(COALESCE(due_at, $2), $2) FROM held WHERE nodes.id = held.id",
        run as OperationId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A node of a run, as input for the decisions of the run.
#[derive(Clone, Debug)]
pub struct EndRow {
    pub name: String,
    /// `None`: the node was removed.
    pub node: Option<NodeId>,
    pub position: Option<i32>,
    pub left_out: Option<String>,
    pub blamed: Option<String>,
    /// The state of the job holding the node, with the failure message in `failure`.
    pub hold: Option<JobState>,
    pub failure: Option<String>,
    /// A stop of the node's operation was requested.
    pub stop: bool,
    /// The run has no remaining work on the node.
    pub back: bool,
    pub profile: Option<Json<HardwareProfile>>,
}

/// Lists the nodes of a run, ordered by position. Nodes without a position come last.
///
/// # Errors
/// When a stored profile cannot be parsed.
pub async fn list(conn: &mut PgConnection, run: OperationId) -> Result<Vec<EndRow>, Error> {
    Ok(sqlx::query_as!(
        EndRow,
        r#"SELECT e.name, e.node_id AS "node: NodeId", e.position, e.left_out, e.blamed, hold.state AS "hold?",
                  hold.failure ->> 'message' AS failure, COALESCE(o.cancel_asked_at IS NOT NULL, false) AS "stop!",
                  (e.back_at IS NOT NULL OR e.node_id IS NULL) AS "back!", profile.spec AS "profile?: Json<HardwareProfile>"
           FROM pair_ends e LEFT JOIN nodes n ON n.id = e.node_id LEFT JOIN objects profile ON profile.id = n.profile_id
           LEFT JOIN operations o ON o.id = n.operation_id AND o.finished_at IS NULL
           LEFT JOIN jobs hold ON hold.id = e.hold_job
           WHERE e.run_id = $1 ORDER BY e.position NULLS LAST, e.name"#,
        run as OperationId,
    )
    .fetch_all(conn)
    .await?)
}

/// Leaves a node out from now on. The part of a node not yet held ends at once, without a return to
/// the scheduler.
pub async fn leave_out(
    conn: &mut PgConnection,
    run: OperationId,
    name: &str,
    why: &str,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE pair_ends SET left_out = COALESCE(left_out, $3),
                back_at = CASE WHEN hold_job IS NULL OR node_id IS NULL THEN COALESCE(back_at, $4) ELSE back_at END
         WHERE run_id = $1 AND name = $2",
        run as OperationId,
        name,
        why,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Numbers the participants of a run. Up to 8 nodes are numbered by name, because the survey has
/// time for all edges. More nodes are numbered in a different order for each run: rounds follow the
/// numbers, and the same edges must not be left out every time.
pub async fn number(conn: &mut PgConnection, run: OperationId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE pair_ends SET position = numbered.at
         FROM (SELECT name, (row_number() OVER (ORDER BY CASE WHEN many > 8 THEN hashtextextended(run_id::text || name, 0) END, name) - 1)::integer AS at
               FROM (SELECT *, count(*) OVER () AS many FROM pair_ends WHERE run_id = $1 AND left_out IS NULL) taken) numbered
         WHERE pair_ends.run_id = $1 AND pair_ends.name = numbered.name",
        run as OperationId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Blames a node for the finding of a gate.
pub async fn blame(
    conn: &mut PgConnection,
    run: OperationId,
    name: &str,
    gate: &str,
    what: &str,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE pair_ends SET gate = $3, blamed = $4 WHERE run_id = $1 AND name = $2",
        run as OperationId,
        name,
        gate,
        what,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the part of nodes never held. Called at the end of a run.
pub async fn let_go(
    conn: &mut PgConnection,
    run: OperationId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE pair_ends SET back_at = $2 WHERE run_id = $1 AND back_at IS NULL AND (hold_job IS NULL OR node_id IS NULL)",
        run as OperationId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The part of a node in a run, as input for the node's reconcile pass.
#[derive(Clone, Debug)]
pub struct PartRow {
    /// The run has ended or continues without the node.
    pub over: bool,
    pub gate: Option<String>,
    pub blamed: Option<String>,
    /// States of the jobs that hold the node and return it to the scheduler, if started.
    pub hold: Option<JobState>,
    pub back: Option<JobState>,
    pub back_failed_at: Option<jiff_sqlx::Timestamp>,
    /// The name of the other node in the current measurement.
    pub other: Option<String>,
    /// Whether the node starts the measurement and has not started yet.
    pub asks: bool,
}

/// Returns the part of a node in its run. `None`: no run holds the node.
pub async fn find_part(conn: &mut PgConnection, node: NodeId) -> Result<Option<PartRow>, Error> {
    Ok(sqlx::query_as!(
        PartRow,
        r#"SELECT (r.ended_at IS NOT NULL OR e.left_out IS NOT NULL) AS "over!", e.gate, e.blamed, hold.state AS "hold?", back.state AS "back?",
                  back.finished_at AS "back_failed_at?", other.name AS "other?",
                  COALESCE(t.a = e.position AND t.job_id IS NULL, false) AS "asks!"
           FROM pair_ends e JOIN pair_runs r ON r.id = e.run_id
           LEFT JOIN jobs hold ON hold.id = e.hold_job LEFT JOIN jobs back ON back.id = e.back_job
           LEFT JOIN pair_trials t ON t.run_id = e.run_id AND t.verdict IS NULL AND e.position IN (t.a, t.b)
           LEFT JOIN pair_ends other ON other.run_id = e.run_id AND other.position IN (t.a, t.b) AND other.position <> e.position
           WHERE e.node_id = $1 AND e.back_at IS NULL"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Records the job given to a node of a run for a step.
pub async fn set_job(
    conn: &mut PgConnection,
    node: NodeId,
    step: Step,
    job: JobId,
) -> Result<(), Error> {
    sqlx::query!(
        "WITH trial AS (
             UPDATE pair_trials t SET job_id = $3 FROM pair_ends e
             WHERE $2 = 'pair' AND e.node_id = $1 AND e.back_at IS NULL AND t.run_id = e.run_id AND t.a = e.position AND t.verdict IS NULL)
         UPDATE pair_ends SET hold_job = CASE WHEN $2 = 'hold' THEN $3 ELSE hold_job END,
                back_job = CASE WHEN $2 = 'admit' THEN $3 ELSE back_job END
         WHERE node_id = $1 AND back_at IS NULL",
        node as NodeId,
        step.as_str(),
        job as JobId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the part of a node in a run. The node serves again, or has left service and the run
/// continues without it.
pub async fn come_back(
    conn: &mut PgConnection,
    node: NodeId,
    left: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE pair_ends e SET back_at = $3, left_out = CASE WHEN r.ended_at IS NULL THEN COALESCE(e.left_out, $2) ELSE e.left_out END
         FROM pair_runs r WHERE e.node_id = $1 AND e.back_at IS NULL AND r.id = e.run_id",
        node as NodeId,
        left,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}
