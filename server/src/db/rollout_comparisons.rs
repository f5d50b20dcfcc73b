//! Values of gates on the changed nodes of a rollout, compared with the values before the change.

use muster_core::gates::Measured;
use muster_core::ids::{NodeId, ObjectId, RolloutId};
use muster_core::rollout::{Comparisons, GateLoss, NotCompared, Regression, compare};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A changed node without a comparison, with the measured values of its gate as stored.
#[derive(Clone, Debug)]
pub struct DueRow {
    pub node: NodeId,
    /// Of the last run since the change. `None` without a result of the gate.
    pub after: Option<Value>,
    /// Of the last run before the change, with the same suite on the same hardware.
    pub before: Option<Value>,
}

impl DueRow {
    /// Compares the values before and after.
    ///
    /// # Errors
    /// When the values cannot be compared.
    pub fn compare(self, metric: &str) -> Result<GateLoss, NotCompared> {
        let after = self.after.ok_or(NotCompared::NoResultAfter)?;
        let before = self.before.ok_or(NotCompared::NoResultBefore)?;
        let read = |value: Value| {
            let measured: Result<Vec<Measured>, _> = serde_json::from_value(value);
            measured.map_err(|_| NotCompared::Unreadable)
        };
        compare(metric, &read(before)?, &read(after)?)
    }
}

/// A metric to be compared, and the suite that measures it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub rollout: RolloutId,
    pub limit: &'a Regression,
    /// Name and version.
    pub suite: &'a str,
}

/// Locks changed nodes without a comparison; of all nodes, or one. New results of the gates wait for the
/// end of the transaction. Nodes locked by others are left out.
pub async fn lock_due(
    conn: &mut PgConnection,
    asked: Asked<'_>,
    node: Option<NodeId>,
    most: i64,
) -> Result<Vec<Uuid>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT n.id FROM rollout_nodes r JOIN nodes n ON n.id = r.node_id
         WHERE r.rollout_id = $1 AND r.mark = 'done' AND r.changed AND ($4::uuid IS NULL OR r.node_id = $4)
               AND NOT EXISTS (SELECT FROM rollout_comparisons c
                               WHERE c.rollout_id = $1 AND c.node_id = r.node_id AND c.gate = $2 AND c.metric = $3)
         ORDER BY n.id LIMIT $5 FOR SHARE OF n SKIP LOCKED",
        asked.rollout as RolloutId,
        asked.limit.gate,
        asked.limit.metric,
        node as Option<NodeId>,
        most,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the results of locked nodes. The value before is from before the first of the rollouts that
/// superseded each other and led here: the last of them may be slow too.
pub async fn list_due(
    conn: &mut PgConnection,
    asked: Asked<'_>,
    nodes: &[Uuid],
) -> Result<Vec<DueRow>, Error> {
    Ok(sqlx::query_as!(
        DueRow,
        r#"SELECT due.node_id AS "node: NodeId", later.measured AS "after?", earlier.measured AS "before?"
           FROM rollout_nodes due JOIN rollouts own ON own.id = due.rollout_id
                LEFT JOIN LATERAL (
                    SELECT min(past.taken_at) AS at FROM rollout_nodes past JOIN rollouts o ON o.id = past.rollout_id
                    WHERE past.node_id = due.node_id AND o.pool_id = own.pool_id AND o.state = 'superseded'
                          AND o.started_at > COALESCE((SELECT max(d.ended_at) FROM rollouts d WHERE d.pool_id = own.pool_id AND d.state = 'done'), '-infinity')
                ) chain ON true
                LEFT JOIN LATERAL (
                    SELECT run.fingerprint, g.result -> 'measured' AS measured
                    FROM gate_runs run JOIN jobs j ON j.id = run.job_id LEFT JOIN operations o ON o.id = j.operation_id
                         JOIN gate_results g ON g.run_id = run.id AND g.gate = $2
                    WHERE run.node_id = due.node_id AND run.suite = $3 AND run.voided_at IS NULL
                          AND (run.finished_at > due.taken_at OR o.rollout_id = due.rollout_id)
                          AND (g.verdict = 'pass' OR g.verdict = 'fail' AND (g.shadow OR g.waived))
                    ORDER BY run.id DESC LIMIT 1) later ON true
                LEFT JOIN LATERAL (
                    SELECT g.result -> 'measured' AS measured
                    FROM gate_runs run JOIN jobs j ON j.id = run.job_id LEFT JOIN operations o ON o.id = j.operation_id
                         JOIN gate_results g ON g.run_id = run.id AND g.gate = $2
                    WHERE run.node_id = due.node_id AND run.suite = $3 AND run.voided_at IS NULL AND run.fingerprint = later.fingerprint
                          AND run.finished_at <= LEAST(due.taken_at, chain.at) AND o.rollout_id IS DISTINCT FROM due.rollout_id
                          AND (g.verdict = 'pass' OR g.verdict = 'fail' AND (g.shadow OR g.waived))
                    ORDER BY run.id DESC LIMIT 1) earlier ON true
           WHERE due.rollout_id = $1 AND due.node_id = ANY ($4)"#,
        asked.rollout as RolloutId,
        asked.limit.gate,
        asked.suite,
        nodes,
    )
    .fetch_all(conn)
    .await?)
}

/// Removes the comparisons of a node in open rollouts: these gates have new results, or all former
/// results are void.
pub async fn forget(
    conn: &mut PgConnection,
    node: NodeId,
    gates: Option<&[String]>,
) -> sqlx::Result<()> {
    let forgotten = sqlx::query!(
        "DELETE FROM rollout_comparisons c USING rollouts o
         WHERE c.node_id = $1 AND o.id = c.rollout_id AND o.state IN ('running', 'halted') AND ($2::text[] IS NULL OR c.gate = ANY ($2))",
        node as NodeId,
        gates,
    );
    forgotten.execute(conn).await.map(drop)
}

/// Writes the comparison of a node.
pub async fn write(
    conn: &mut PgConnection,
    asked: Asked<'_>,
    node: NodeId,
    found: Result<&GateLoss, NotCompared>,
) -> Result<(), Error> {
    let loss = found.ok();
    sqlx::query!(
        "INSERT INTO rollout_comparisons (rollout_id, node_id, gate, metric, entity, before, after, unit, loss, problem)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING",
        asked.rollout as RolloutId,
        node as NodeId,
        asked.limit.gate,
        asked.limit.metric,
        loss.map(|loss| loss.entity.as_str()),
        loss.map(|loss| loss.before),
        loss.map(|loss| loss.after),
        loss.map(|loss| loss.unit.as_str()),
        loss.map(|loss| loss.percent),
        found.err().map(NotCompared::as_str),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The counted comparisons of a metric.
#[derive(Clone, Copy, Debug)]
pub struct CountedRow {
    pub changed: i64,
    /// Changed nodes without a comparison.
    pub pending: i64,
    /// Changed nodes that cannot be compared.
    pub unmatched: i64,
    /// Also nodes that failed since their change.
    pub compared: i64,
    pub worse: i64,
    /// The largest loss, in percent.
    pub worst: Option<f64>,
}

impl CountedRow {
    /// Returns the counts for the decision on the state.
    pub fn comparisons(&self) -> Comparisons {
        let count = |number: i64| u32::try_from(number).unwrap_or_default();
        Comparisons {
            changed: count(self.changed),
            pending: count(self.pending),
            compared: count(self.compared),
            worse: count(self.worse),
        }
    }
}

/// Counts the changed nodes of a rollout by their comparison.
pub async fn count(
    conn: &mut PgConnection,
    rollout: RolloutId,
    limit: &Regression,
) -> Result<CountedRow, Error> {
    Ok(sqlx::query_as!(
        CountedRow,
        r#"SELECT count(*) FILTER (WHERE r.mark = 'done' AND r.changed) AS "changed!",
                  count(*) FILTER (WHERE r.mark = 'done' AND r.changed AND c.node_id IS NULL) AS "pending!",
                  count(*) FILTER (WHERE r.mark = 'done' AND r.changed AND c.problem IS NOT NULL) AS "unmatched!", count(c.loss) AS "compared!",
                  count(*) FILTER (WHERE c.loss > $4) AS "worse!", max(c.loss) AS worst
           FROM rollout_nodes r LEFT JOIN rollout_comparisons c ON c.rollout_id = r.rollout_id AND c.node_id = r.node_id
                AND c.gate = $2 AND c.metric = $3
           WHERE r.rollout_id = $1"#,
        rollout as RolloutId,
        limit.gate,
        limit.metric,
        f64::from(limit.percent),
    )
    .fetch_one(conn)
    .await?)
}

/// A comparison of a node.
#[derive(Clone, Debug)]
pub struct ComparisonRow {
    pub node: NodeId,
    pub gate: String,
    pub metric: String,
    pub entity: Option<String>,
    pub before: Option<f64>,
    pub after: Option<f64>,
    pub unit: Option<String>,
    pub loss: Option<f64>,
    pub problem: Option<NotCompared>,
}

/// Lists the comparisons of a rollout's changed nodes, ordered by gate and metric.
pub async fn list(
    conn: &mut PgConnection,
    rollout: RolloutId,
) -> Result<Vec<ComparisonRow>, Error> {
    Ok(sqlx::query_as!(
        ComparisonRow,
        r#"SELECT c.node_id AS "node: NodeId", c.gate, c.metric, c.entity, c.before, c.after, c.unit, c.loss, c.problem AS "problem: NotCompared"
           FROM rollout_comparisons c
           WHERE c.rollout_id = $1 ORDER BY c.gate, c.metric"#,
        rollout as RolloutId,
    )
    .fetch_all(conn)
    .await?)
}

/// Returns whether a node of a pool has a result of a gate with this suite.
pub async fn has_result(
    conn: &mut PgConnection,
    pool: ObjectId,
    gate: &str,
    suite: &str,
) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM claims c JOIN gate_runs run ON run.node_id = c.node_id AND run.voided_at IS NULL AND run.suite = $3
                          JOIN gate_results g ON g.run_id = run.id AND g.gate = $2 AND (g.verdict = 'pass' OR g.verdict = 'fail' AND (g.shadow OR g.waived))
                          WHERE c.pool_id = $1 AND c.state = 'bound') AS "has!""#,
        pool as ObjectId,
        gate,
        suite,
    )
    .fetch_one(conn)
    .await?)
}
