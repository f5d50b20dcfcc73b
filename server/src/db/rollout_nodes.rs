//! The nodes of rollouts: marks, and the facts behind the marks.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::operations::OperationState;
use muster_core::clusters::slurm::OUR_REASON;
use muster_core::ids::{ClaimId, NodeId, ObjectId, OperationId, RolloutId};
use muster_core::lifecycle::state::{Action, State};
use muster_core::lifecycle::wait::WaitReason;
use muster_core::rollout::{DomainAxis, Mark, Member, NodePlace, list_domains};
use sqlx::PgConnection;
use uuid::Uuid;

use super::disruption::find_service;
use super::objects::Labels;
use super::rollout_places::Places;
use crate::error::Error;

/// A node of a rollout, with the facts of its claim and lifecycle.
#[derive(Clone, Debug)]
pub struct NodeRow {
    pub node: NodeId,
    pub name: String,
    pub claim: ClaimId,
    /// Number of the revision assigned before the rollout took the node.
    pub former: Option<i32>,
    pub mark: Mark,
    pub since: Timestamp,
    pub reason_code: Option<String>,
    pub reason: Option<String>,
    pub changed: bool,
    pub wrong: Vec<String>,
    pub failed_before: bool,
    pub deferred_until: Option<jiff_sqlx::Timestamp>,
    pub operation: Option<OperationId>,
    /// The claim still holds the node for the pool.
    pub is_member: bool,
    pub assigned: Option<i32>,
    pub running: Option<i32>,
    pub hold: bool,
    pub state: State,
    /// The entry into the state.
    pub entered_at: Timestamp,
    pub state_reason: Option<String>,
    pub action: Option<Action>,
    pub node_operation: Option<OperationId>,
    /// The kind of the node's open operation.
    pub open_operation: Option<String>,
    /// The state of the operation of the present attempt.
    pub attempt: Option<OperationState>,
    pub attempted_at: Option<jiff_sqlx::Timestamp>,
    pub protected: bool,
    pub adopted: bool,
    pub site: ObjectId,
    pub rack: Option<ObjectId>,
    pub profile: Option<ObjectId>,
    pub labels: Labels,
    /// Start of the time without jobs, for a node that waits or drains.
    pub idle_since: Option<jiff_sqlx::Timestamp>,
    /// The node failed in another rollout, on the assigned revision, and no other request has had it
    /// since.
    pub failed_on_assigned: bool,
    /// The state that failed, of a failed node.
    pub failed_phase: Option<State>,
    /// No system is installed: an image write was begun, and did not end.
    pub has_no_system: bool,
    /// The last retry by a person.
    pub retried_at: Option<jiff_sqlx::Timestamp>,
    /// A person agreed to requeue the node's jobs, in the present wait.
    pub requeue_agreed_at: Option<jiff_sqlx::Timestamp>,
    /// The node is drained, and the nodes of the same unit are not all drained.
    pub waits_for_unit: bool,
    /// The change of the node's unit has started; the node may still be on the way out of the
    /// scheduler.
    pub unit_started: bool,
    /// The plan lists the node for a reinstall.
    pub reinstall_planned: bool,
    /// Changed by the rollout, and broken since: to be marked as failed.
    pub is_broken: bool,
    /// The claim was once in service.
    pub served: bool,
    /// Muster holds back the scheduler's jobs for a measurement.
    pub held_back: bool,
    /// See [`super::disruption::MemberRow::out`].
    pub out: Option<String>,
    pub written_off_until: Option<jiff_sqlx::Timestamp>,
}

impl NodeRow {
    /// Returns the node as the ledger reads it, with the failure domains of the node's site.
    pub fn member(&self, places: &Places, axes: &[DomainAxis]) -> Member {
        let rack_labels = self.rack.and_then(|rack| places.labels(rack));
        let place = NodePlace {
            rack: self.rack.map(|rack| places.name(rack)),
            rack_labels: rack_labels.map(|labels| &labels.0),
            labels: &self.labels.0,
        };
        Member {
            node: self.node,
            in_pool: true,
            domains: list_domains(axes, place),
            service: find_service(self.state, self.served, self.held_back),
            others_drain: self.out.clone(),
            written_off_until: self.written_off_until.map(|until| until.to_jiff()),
        }
    }
}

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

/// Lists the nodes of a rollout with their facts, ordered by name.
pub async fn list_nodes(conn: &mut PgConnection, id: RolloutId) -> Result<Vec<NodeRow>, Error> {
    let mut rows = sqlx::query_as!(
        NodeRow,
        r#"SELECT r.node_id AS "node: NodeId", n.name, r.claim_id AS "claim: ClaimId", former.number AS "former?", r.mark AS "mark: Mark", r.since, r.reason_code, r.reason,
                  r.changed, r.wrong, r.failed_before, r.deferred_until, r.operation_id AS "operation: OperationId",
                  c.state = 'bound' AND c.node_id = r.node_id AND c.pool_id = rollout.pool_id AS "is_member!", assigned.number AS "assigned?", running.number AS "running?", c.hold,
                  n.state, n.entered_at, n.reason AS state_reason, n.wish AS "action: Action", n.operation_id AS "node_operation: OperationId",
                  open.kind AS "open_operation?", attempt.state AS "attempt?", attempt.created_at AS "attempted_at?", n.protected, n.adopted,
                  n.site_id AS "site: ObjectId", n.rack_id AS "rack: ObjectId", n.profile_id AS "profile: ObjectId", n.labels AS "labels: Labels",
                  r.idle_since, r.reinstall_planned, n.waiting_reason IS NOT DISTINCT FROM $3 AS "waits_for_unit!", r.unit_change IS NOT DISTINCT FROM 'started' AS "unit_started!",
                  n.failed_phase AS "failed_phase: State", n.os_host_key IS NULL AS "has_no_system!", r.retried_at, r.requeue_agreed_at,
                  n.state IN ('failed', 'quarantined') AND EXISTS (
                          SELECT FROM rollout_nodes f JOIN rollouts o ON o.id = f.rollout_id
                          WHERE f.node_id = r.node_id AND f.claim_id = r.claim_id AND f.rollout_id <> r.rollout_id
                                AND (f.mark = 'failed' OR f.mark = 'changing' AND n.state = 'failed')
                                AND (f.operation_id = n.operation_id OR f.since >= n.entered_at) AND o.target_id = c.assigned_id)
                      AND NOT EXISTS (
                          SELECT FROM operations q WHERE q.node_id = r.node_id AND q.kind = 'quarantine' AND q.state <> 'cancelled'
                                AND q.finished_at >= n.entered_at) AS "failed_on_assigned!",
                  r.mark = 'done' AND r.changed AND n.state IN ('repairing', 'quarantined', 'failed') AND n.purpose IS DISTINCT FROM 'maintenance' AS "is_broken!",
                  c.served_at IS NOT NULL AS "served!", n.held_back OR n.id IN (SELECT e.node_id FROM pair_ends e WHERE e.back_at IS NULL AND e.node_id IS NOT NULL) AS "held_back!",
                  CASE WHEN o.node_id IS NOT NULL AND n.state = 'in_service' AND (starts_with(o.reason, $2) AND o.seen_at <= n.entered_at) IS NOT TRUE
                       THEN concat_ws(': ', o.state, o.reason) END AS out,
                  c.written_off_until
           FROM rollout_nodes r JOIN rollouts rollout ON rollout.id = r.rollout_id
                JOIN nodes n ON n.id = r.node_id JOIN claims c ON c.id = r.claim_id
                LEFT JOIN pool_revisions assigned ON assigned.id = c.assigned_id LEFT JOIN pool_revisions running ON running.id = c.running_id
                LEFT JOIN pool_revisions former ON former.id = r.before_id
                LEFT JOIN operations open ON open.id = n.operation_id AND open.finished_at IS NULL
                LEFT JOIN operations attempt ON attempt.id = r.operation_id
                LEFT JOIN scheduler_outs o ON o.node_id = n.id
           WHERE r.rollout_id = $1"#,
        id as RolloutId,
        OUR_REASON,
        WaitReason::Unit.as_str(),
    )
    .fetch_all(conn)
    .await?;
    // A sort of such wide rows is slow in the database.
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(rows)
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

/// Records the revision assigned now, before the rollout assigns the target.
pub async fn keep_assigned(
    conn: &mut PgConnection,
    rollout: RolloutId,
    node: NodeId,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE rollout_nodes r SET before_id = c.assigned_id FROM claims c, rollouts o
         WHERE r.rollout_id = $1 AND r.node_id = $2 AND c.id = r.claim_id AND o.id = $1 AND c.assigned_id <> o.target_id",
        rollout as RolloutId,
        node as NodeId
    )
    .execute(conn)
    .await?;
    Ok(())
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
