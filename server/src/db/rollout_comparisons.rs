//! Values of gates on the changed nodes of a rollout, compared with the values before the change.

use muster_core::gates::Measured;
use muster_core::ids::{NodeId, ObjectId, RolloutId};
use muster_core::rollout::{Comparisons, GateLoss, NotCompared, Regression, compare};
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::error::Error;

/// A changed node without a comparison, with the values of its last gates.
#[derive(Clone, Debug)]
pub struct DueRow {
    pub node: NodeId,
    pub changed_at: jiff_sqlx::Timestamp,
    /// From the operation of the change. `None` without a result of the gate.
    pub after: Option<Json<Vec<Measured>>>,
    /// From the last run before the change, with the same suite on the same hardware.
    pub before: Option<Json<Vec<Measured>>>,
}

impl DueRow {
    /// Compares the values before and after.
    ///
    /// # Errors
    /// When the values cannot be compared.
    pub fn compare(&self, metric: &str) -> Result<GateLoss, NotCompared> {
        let after = self.after.as_ref().ok_or(NotCompared::NoResultAfter)?;
        let before = self.before.as_ref().ok_or(NotCompared::NoResultBefore)?;
        compare(metric, &before.0, &after.0)
    }
}

/// Lists changed nodes without a comparison, oldest first.
pub async fn list_due(
    conn: &mut PgConnection,
    rollout: RolloutId,
    limit: &Regression,
    most: i64,
) -> Result<Vec<DueRow>, Error> {
    Ok(sqlx::query_as!(
        DueRow,
        r#"SELECT r.node_id AS "node: NodeId", r.since AS changed_at, later.measured AS "after?: Json<Vec<Measured>>", earlier.measured AS "before?: Json<Vec<Measured>>"
           FROM rollout_nodes r
                LEFT JOIN LATERAL (
                    SELECT run.suite, run.fingerprint, g.result -> 'measured' AS measured
                    FROM gate_runs run JOIN jobs j ON j.id = run.job_id AND j.operation_id = r.operation_id
                         JOIN gate_results g ON g.run_id = run.id AND g.gate = $2
                    WHERE run.node_id = r.node_id AND run.voided_at IS NULL AND g.verdict IN ('pass', 'fail')
                    ORDER BY run.id DESC LIMIT 1) later ON true
                LEFT JOIN LATERAL (
                    SELECT g.result -> 'measured' AS measured
                    FROM gate_runs run JOIN jobs j ON j.id = run.job_id LEFT JOIN operations o ON o.id = j.operation_id
                         JOIN gate_results g ON g.run_id = run.id AND g.gate = $2
                    WHERE run.node_id = r.node_id AND run.voided_at IS NULL AND run.finished_at <= r.taken_at AND o.rollout_id IS DISTINCT FROM r.rollout_id
                          AND run.suite = later.suite AND run.fingerprint = later.fingerprint
                          AND (g.verdict = 'pass' OR g.verdict = 'fail' AND (g.shadow OR g.waived))
                    ORDER BY run.id DESC LIMIT 1) earlier ON true
           WHERE r.rollout_id = $1 AND r.mark = 'done' AND r.changed
                 AND NOT EXISTS (SELECT FROM rollout_comparisons c WHERE c.rollout_id = $1 AND c.node_id = r.node_id
                                 AND c.gate = $2 AND c.metric = $3 AND c.changed_at = r.since)
           ORDER BY r.since LIMIT $4"#,
        rollout as RolloutId,
        limit.gate,
        limit.metric,
        most,
    )
    .fetch_all(conn)
    .await?)
}

/// Writes the comparison of a node.
pub async fn write(
    conn: &mut PgConnection,
    rollout: RolloutId,
    limit: &Regression,
    row: &DueRow,
    found: Result<&GateLoss, NotCompared>,
) -> Result<(), Error> {
    let loss = found.ok();
    sqlx::query!(
        "INSERT INTO rollout_comparisons (rollout_id, node_id, gate, metric, changed_at, entity, before, after, unit, loss, problem)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
         ON CONFLICT (rollout_id, node_id, gate, metric) DO UPDATE SET changed_at = $5, entity = $6, before = $7, after = $8, unit = $9, loss = $10, problem = $11",
        rollout as RolloutId,
        row.node as NodeId,
        limit.gate,
        limit.metric,
        row.changed_at as _,
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
    pub looked_at: i64,
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
            pending: count(self.changed - self.looked_at),
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
        r#"SELECT count(*) AS "changed!", count(c.node_id) AS "looked_at!", count(c.loss) AS "compared!",
                  count(*) FILTER (WHERE c.loss > $4) AS "worse!", max(c.loss) AS worst
           FROM rollout_nodes r LEFT JOIN rollout_comparisons c ON c.rollout_id = r.rollout_id AND c.node_id = r.node_id
                AND c.gate = $2 AND c.metric = $3 AND c.changed_at = r.since
           WHERE r.rollout_id = $1 AND r.mark = 'done' AND r.changed"#,
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
           FROM rollout_comparisons c JOIN rollout_nodes r ON r.rollout_id = c.rollout_id AND r.node_id = c.node_id AND r.mark = 'done' AND r.since = c.changed_at
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
                          JOIN gate_results g ON g.run_id = run.id AND g.gate = $2 AND g.verdict IN ('pass', 'fail')
                          WHERE c.pool_id = $1 AND c.state = 'bound') AS "has!""#,
        pool as ObjectId,
        gate,
        suite,
    )
    .fetch_one(conn)
    .await?)
}
