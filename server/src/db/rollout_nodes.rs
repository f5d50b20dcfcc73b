//! The marks of the nodes of rollouts.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{NodeId, ObjectId, OperationId, RolloutId};
use muster_core::rollout::Mark;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// Adds the claims of the rollout's pool that have no mark yet, and removes the nodes that left. A
/// failed node that leaves stays counted. A changed node that fails later in the run counts as
/// failed, so a canary that breaks during its soak halts the rollout.
pub async fn follow_members(
    conn: &mut PgConnection,
    id: RolloutId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "WITH gone AS (
             DELETE FROM rollout_nodes r WHERE r.rollout_id = $1 AND NOT EXISTS (
                 SELECT FROM claims c JOIN rollouts o ON o.id = $1 AND o.pool_id = c.pool_id
                 WHERE c.id = r.claim_id AND c.node_id = r.node_id AND c.state = 'bound')
             RETURNING r.failed_before OR r.mark = 'failed' AS failed)
         UPDATE rollouts SET failed_and_left = failed_and_left + (SELECT count(*) FROM gone WHERE failed)::integer
         WHERE id = $1 AND EXISTS (SELECT FROM gone WHERE failed)",
        id as RolloutId
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "UPDATE rollout_nodes r SET mark = 'failed', since = $2, failed_before = true, reason_code = 'failed_after_change',
                reason = 'failed after the change: ' || COALESCE(n.reason, n.state)
         FROM nodes n WHERE n.id = r.node_id AND r.rollout_id = $1 AND r.mark = 'done' AND r.changed
              AND n.state IN ('repairing', 'quarantined', 'failed') AND n.purpose IS DISTINCT FROM 'maintenance'",
        id as RolloutId,
        now.to_sqlx() as _
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "INSERT INTO rollout_nodes (rollout_id, node_id, claim_id, before_id, since)
         SELECT o.id, c.node_id, c.id, c.assigned_id, $2 FROM rollouts o JOIN claims c ON c.pool_id = o.pool_id AND c.state = 'bound'
         WHERE o.id = $1 ON CONFLICT DO NOTHING",
        id as RolloutId,
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a retry by a person.
pub async fn set_retried(
    conn: &mut PgConnection,
    id: RolloutId,
    node: NodeId,
    now: Timestamp,
) -> sqlx::Result<()> {
    let retried = sqlx::query!(
        "UPDATE rollout_nodes SET retried_at = $3 WHERE rollout_id = $1 AND node_id = $2",
        id as RolloutId,
        node as NodeId,
        now.to_sqlx() as _
    );
    retried.execute(conn).await.map(drop)
}

/// Records that a person agreed to requeue the jobs of a node.
pub async fn set_requeue_agreed(
    conn: &mut PgConnection,
    id: RolloutId,
    node: NodeId,
    now: Timestamp,
) -> sqlx::Result<()> {
    let agreed = sqlx::query!(
        "UPDATE rollout_nodes SET requeue_agreed_at = $3 WHERE rollout_id = $1 AND node_id = $2",
        id as RolloutId,
        node as NodeId,
        now.to_sqlx() as _
    );
    agreed.execute(conn).await.map(drop)
}

/// Number of nodes listed for a reinstall by rollouts started since a time.
#[derive(Clone, Copy, Debug)]
pub struct ListedReinstalls {
    pub by_person: i64,
    pub of_pool: i64,
}

/// Counts the reinstalls of rollouts started by a person, or for a pool.
pub async fn count_reinstalls(
    conn: &mut PgConnection,
    person: &str,
    pool: ObjectId,
    since: Timestamp,
) -> Result<ListedReinstalls, Error> {
    Ok(sqlx::query_as!(
        ListedReinstalls,
        r#"SELECT count(*) FILTER (WHERE o.started_by = $1) AS "by_person!", count(*) FILTER (WHERE o.pool_id = $2) AS "of_pool!"
           FROM rollouts o JOIN rollout_nodes r ON r.rollout_id = o.id AND r.reinstall_planned
           WHERE o.started_at > $3"#,
        person,
        pool as ObjectId,
        since.to_sqlx() as _
    )
    .fetch_one(conn)
    .await?)
}

/// Marks the nodes that the plan lists for a reinstall.
pub async fn plan_reinstalls(
    conn: &mut PgConnection,
    id: RolloutId,
    nodes: &[NodeId],
) -> sqlx::Result<()> {
    let nodes: Vec<Uuid> = nodes.iter().map(|node| node.0).collect();
    let planned = sqlx::query!(
        "UPDATE rollout_nodes SET reinstall_planned = true WHERE rollout_id = $1 AND node_id = ANY ($2)",
        id as RolloutId,
        &nodes
    );
    planned.execute(conn).await.map(drop)
}

/// A new mark of a node.
#[derive(Clone, Debug)]
pub struct NewMark<'a> {
    pub rollout: RolloutId,
    pub node: NodeId,
    pub mark: Mark,
    pub reason_code: &'a str,
    pub reason: &'a str,
    /// Of a done node: whether the rollout changed the node.
    pub changed: bool,
    pub deferred_until: Option<Timestamp>,
    /// The result of a wrong attempt, kept for the next attempt.
    pub wrong: Option<&'a str>,
    pub operation: Option<OperationId>,
    /// `None` for a node that is changed alone.
    pub unit_change: Option<UnitChange>,
}

/// The change of a node that is changed together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitChange {
    /// The change starts after the drains of all nodes of the unit.
    Waits,
    Started,
}

impl UnitChange {
    fn as_str(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Started => "started",
        }
    }
}

/// Writes a mark with its reason.
pub async fn set_mark(
    conn: &mut PgConnection,
    new: &NewMark<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollout_nodes SET mark = $3, since = $4, reason_code = $5, reason = $6, changed = $7, deferred_until = $8,
                wrong = CASE WHEN $9::text IS NULL THEN wrong ELSE wrong || $9::text END, operation_id = COALESCE($10, operation_id),
                failed_before = failed_before OR $3 = 'failed', requeue_agreed_at = NULL, unit_change = $11,
                taken_at = CASE WHEN $3 = 'changing' THEN COALESCE(taken_at, $4) WHEN $3 = 'skipped' OR $3 IN ('not_begun', 'waiting') AND NOT failed_before AND wrong = '{}' THEN NULL ELSE taken_at END,
                idle_since = CASE WHEN $3 IN ('waiting', 'changing') AND NOT EXISTS (SELECT FROM scheduler_jobs j WHERE j.node_id = $2)
                             THEN COALESCE(CASE WHEN mark IN ('waiting', 'changing') THEN idle_since END, $4) END
         WHERE rollout_id = $1 AND node_id = $2",
        new.rollout as RolloutId,
        new.node as NodeId,
        new.mark.as_str(),
        now.to_sqlx() as _,
        new.reason_code,
        new.reason,
        new.changed,
        new.deferred_until.map(|until| until.to_sqlx()) as _,
        new.wrong,
        new.operation as Option<OperationId>,
        new.unit_change.map(UnitChange::as_str),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes the reason of a refused act. The mark stays.
pub async fn note(
    conn: &mut PgConnection,
    rollout: RolloutId,
    node: NodeId,
    code: &str,
    reason: &str,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollout_nodes SET reason_code = $3, reason = $4 WHERE rollout_id = $1 AND node_id = $2 AND reason IS DISTINCT FROM $4",
        rollout as RolloutId,
        node as NodeId,
        code,
        reason
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records reasons of nodes under one code.
pub async fn note_all(
    conn: &mut PgConnection,
    rollout: RolloutId,
    code: &str,
    reasons: &[(NodeId, String)],
) -> Result<(), Error> {
    let nodes: Vec<Uuid> = reasons.iter().map(|(node, _)| node.0).collect();
    let reasons: Vec<String> = reasons.iter().map(|(_, reason)| reason.clone()).collect();
    sqlx::query!(
        "UPDATE rollout_nodes r SET reason_code = $2, reason = n.reason
         FROM unnest($3::uuid[], $4::text[]) AS n(node, reason) WHERE r.rollout_id = $1 AND r.node_id = n.node",
        rollout as RolloutId,
        code,
        &nodes,
        &reasons
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The mark of a node, with the facts to be checked before an act.
#[derive(Clone, Copy, Debug)]
pub struct MarkRow {
    pub mark: Mark,
    /// The claim holds the node for the rollout's pool, and is not on hold.
    pub is_free: bool,
}

/// Returns the mark of a node. The caller holds the locks of the rollout and of the node.
pub async fn find_mark(
    conn: &mut PgConnection,
    rollout: RolloutId,
    node: NodeId,
) -> Result<Option<MarkRow>, Error> {
    Ok(sqlx::query_as!(
        MarkRow,
        r#"SELECT r.mark AS "mark: Mark",
                  EXISTS (SELECT FROM claims c JOIN rollouts o ON o.id = r.rollout_id AND o.pool_id = c.pool_id
                          WHERE c.id = r.claim_id AND c.node_id = r.node_id AND c.state = 'bound' AND NOT c.hold) AS "is_free!"
           FROM rollout_nodes r WHERE r.rollout_id = $1 AND r.node_id = $2"#,
        rollout as RolloutId,
        node as NodeId
    )
    .fetch_optional(conn)
    .await?)
}

/// Assigns a node's claim the target, and keeps the revision from before. The node is not changed.
/// `false`: the claim is no longer bound.
pub async fn assign_target(
    conn: &mut PgConnection,
    rollout: RolloutId,
    node: NodeId,
    now: Timestamp,
) -> Result<bool, Error> {
    sqlx::query!(
        "UPDATE rollout_nodes r SET before_id = c.assigned_id FROM claims c, rollouts o
         WHERE r.rollout_id = $1 AND r.node_id = $2 AND c.id = r.claim_id AND o.id = $1 AND c.assigned_id <> o.target_id",
        rollout as RolloutId,
        node as NodeId
    )
    .execute(&mut *conn)
    .await?;
    let done = sqlx::query!(
        "UPDATE claims c SET assigned_id = o.target_id, updated_at = $3 FROM rollout_nodes r, rollouts o
         WHERE r.rollout_id = $1 AND r.node_id = $2 AND o.id = $1 AND c.id = r.claim_id AND c.state = 'bound'",
        rollout as RolloutId,
        node as NodeId,
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Assigns a node's claim the revision from before the rollout, if the claim still has the target.
pub async fn restore_assigned(
    conn: &mut PgConnection,
    rollout: RolloutId,
    node: NodeId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE claims c SET assigned_id = r.before_id, updated_at = $3 FROM rollout_nodes r, rollouts o
         WHERE r.rollout_id = $1 AND r.node_id = $2 AND o.id = $1 AND c.id = r.claim_id AND c.state = 'bound'
           AND c.assigned_id = o.target_id AND r.before_id IS NOT NULL",
        rollout as RolloutId,
        node as NodeId,
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Counts the nodes of a rollout by mark.
pub async fn count_marks(
    conn: &mut PgConnection,
    id: RolloutId,
) -> Result<Vec<(String, u32)>, Error> {
    let rows = sqlx::query!(
        r#"SELECT mark, count(*) AS "count!" FROM rollout_nodes WHERE rollout_id = $1 GROUP BY mark"#,
        id as RolloutId
    )
    .fetch_all(conn)
    .await?;
    let count = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(rows
        .into_iter()
        .map(|row| (row.mark, count(row.count)))
        .collect())
}

/// A revision that nodes of a rollout were assigned before the rollout.
#[derive(Clone, Copy, Debug)]
pub struct FormerRow {
    pub rollout: RolloutId,
    /// Number of the revision.
    pub number: i32,
}

/// Lists the revisions that the nodes of rollouts were assigned before, without the targets, by
/// number.
pub async fn list_former(
    conn: &mut PgConnection,
    rollouts: &[RolloutId],
) -> Result<Vec<FormerRow>, Error> {
    let ids: Vec<Uuid> = rollouts.iter().map(|id| id.0).collect();
    Ok(sqlx::query_as!(
        FormerRow,
        r#"SELECT DISTINCT r.rollout_id AS "rollout: RolloutId", former.number
           FROM rollout_nodes r JOIN rollouts o ON o.id = r.rollout_id
                JOIN pool_revisions former ON former.id = r.before_id AND former.id <> o.target_id
           WHERE r.rollout_id = ANY($1) ORDER BY former.number"#,
        &ids
    )
    .fetch_all(conn)
    .await?)
}
