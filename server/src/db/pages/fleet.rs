//! Queries for the fleet's page.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::NodeId;
use muster_core::lifecycle::state::State;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A node in need of attention by a person.
#[derive(Clone, Debug)]
pub struct AttentionRow {
    pub id: NodeId,
    pub name: String,
    pub state: State,
    pub entered_at: Timestamp,
    pub deadline_at: Option<jiff_sqlx::Timestamp>,
    pub reason: Option<String>,
    pub waiting_for: Option<String>,
    pub waiting_reason: Option<String>,
    pub waiting_owner: Option<String>,
    pub next_action: Option<String>,
}

/// Lists the nodes past the deadline of a moving state, the longest overdue first. `nodes` limits
/// the result to the given nodes.
pub async fn list_stuck(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<AttentionRow>, Error> {
    Ok(sqlx::query_as!(
        AttentionRow,
        r#"SELECT id AS "id: NodeId", name, state, entered_at, deadline_at, reason, waiting_for, waiting_reason, waiting_owner, next_action
           FROM nodes
           WHERE deadline_at < $1 AND state NOT IN ('quarantined', 'failed', 'maintenance')
             AND ($3::uuid[] IS NULL OR id = ANY ($3))
           ORDER BY deadline_at LIMIT $2"#,
        now.to_sqlx() as _,
        limit,
        nodes,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists quarantined and failed nodes, newest first. The engine does not move such nodes. `nodes`
/// limits the result to the given nodes.
pub async fn list_helpless(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    limit: i64,
) -> Result<Vec<AttentionRow>, Error> {
    Ok(sqlx::query_as!(
        AttentionRow,
        r#"SELECT id AS "id: NodeId", name, state, entered_at, deadline_at, reason, waiting_for, waiting_reason, waiting_owner, next_action
           FROM nodes WHERE state IN ('quarantined', 'failed') AND ($2::uuid[] IS NULL OR id = ANY ($2))
           ORDER BY entered_at DESC LIMIT $1"#,
        limit,
        nodes,
    )
    .fetch_all(conn)
    .await?)
}

/// A gate that did not pass, with the numbers of failures, errors and nodes.
#[derive(Clone, Debug)]
pub struct FailingGate {
    pub gate: String,
    pub fails: i64,
    pub errors: i64,
    pub nodes: i64,
    /// The name of one affected node, as a starting point.
    pub example: String,
}

/// Lists gates with verdict `fail` or `error` in runs since `since`, the most frequent first.
/// Shadow gates, waived gates and void runs are skipped, because they block no node. `nodes` limits
/// the result to the given nodes. Ids of runs grow with time, so the primary key finds the runs.
pub async fn list_failing_gates(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    since: Timestamp,
    limit: i64,
) -> Result<Vec<FailingGate>, Error> {
    Ok(sqlx::query_as!(
        FailingGate,
        r#"SELECT g.gate, count(*) FILTER (WHERE g.verdict = 'fail') AS "fails!", count(*) FILTER (WHERE g.verdict = 'error') AS "errors!",
                  count(DISTINCT r.node_id) AS "nodes!", min(n.name) AS "example!"
           FROM gate_runs r JOIN gate_results g ON g.run_id = r.id JOIN nodes n ON n.id = r.node_id
           WHERE r.id >= $1 AND g.verdict IN ('fail', 'error') AND r.voided_at IS NULL
             AND NOT g.shadow AND NOT g.waived AND ($3::uuid[] IS NULL OR r.node_id = ANY ($3))
           GROUP BY g.gate ORDER BY count(*) DESC, g.gate LIMIT $2"#,
        first_id(since),
        limit,
        nodes,
    )
    .fetch_all(conn)
    .await?)
}

/// Returns the smallest UUIDv7 of a time.
fn first_id(at: Timestamp) -> Uuid {
    let millis = u64::try_from(at.as_millisecond()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid()
}

/// A change of a node's state.
#[derive(Clone, Debug)]
pub struct TransitionRow {
    pub at: Timestamp,
    pub node: Option<String>,
    pub detail: Value,
}

/// The number of newest events searched for transitions.
const SEARCHED: i64 = 2000;

/// Lists the newest transitions since `since`, newest first, found among the newest `SEARCHED`
/// events. `nodes` limits the result to the given nodes.
pub async fn list_transitions(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    since: Timestamp,
    limit: i64,
) -> Result<Vec<TransitionRow>, Error> {
    Ok(sqlx::query_as!(
        TransitionRow,
        r#"SELECT e.at AS "at!: jiff_sqlx::Timestamp", n.name AS "node?", e.detail AS "detail!"
           FROM (SELECT seq, at, kind, node_id, detail FROM events ORDER BY seq DESC LIMIT $3) e
           LEFT JOIN nodes n ON n.id = e.node_id
           WHERE e.kind = 'node.advanced' AND e.at >= $1 AND ($4::uuid[] IS NULL OR e.node_id = ANY ($4))
           ORDER BY e.seq DESC LIMIT $2"#,
        since.to_sqlx() as _,
        limit,
        SEARCHED,
        nodes,
    )
    .fetch_all(conn)
    .await?)
}
