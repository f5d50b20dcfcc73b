//! The nodes of a rollout with the facts of their claims and lifecycles, for the planner.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_api::operations::OperationState;
use muster_core::clusters::slurm::OUR_REASON;
use muster_core::ids::{ClaimId, NodeId, ObjectId, OperationId, RevisionId, RolloutId};
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

/// Lists the nodes of a rollout with their facts, ordered by name. Most nodes of a large rollout serve
/// without work, so only their few facts are read.
pub async fn list_nodes(conn: &mut PgConnection, id: RolloutId) -> Result<Vec<NodeRow>, Error> {
    let resting = list_resting(conn, id).await?;
    let busy: Vec<Uuid> = resting
        .iter()
        .filter(|row| !row.is_resting)
        .map(|row| row.node.0)
        .collect();
    let numbers = number_revisions(conn, &resting).await?;
    let mut rows = match busy.is_empty() {
        true => Vec::new(),
        false => list_busy(conn, id, &busy).await?,
    };
    let resting = resting.into_iter().filter(|row| row.is_resting);
    rows.extend(resting.map(|row| row.complete(&numbers)));
    // A sort of such wide rows is slow in the database.
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(rows)
}

/// A node in service without work, and without a wait or a failure in the rollout.
struct RestingRow {
    /// False for a node with more facts, of [`list_busy`]. The other members are then incomplete.
    is_resting: bool,
    node: NodeId,
    name: String,
    claim: ClaimId,
    before: Option<RevisionId>,
    assigned: Option<RevisionId>,
    running: Option<RevisionId>,
    is_done: bool,
    since: Timestamp,
    reason_code: Option<String>,
    reason: Option<String>,
    changed: bool,
    operation: Option<OperationId>,
    attempted_at: Option<jiff_sqlx::Timestamp>,
    hold: bool,
    entered_at: Timestamp,
    protected: bool,
    adopted: bool,
    site: ObjectId,
    rack: Option<ObjectId>,
    profile: Option<ObjectId>,
    /// `None` without a label.
    labels: Option<Labels>,
    has_no_system: bool,
    served: bool,
    held_back: bool,
    out: Option<String>,
    written_off_until: Option<jiff_sqlx::Timestamp>,
}

impl RestingRow {
    fn complete(self, numbers: &BTreeMap<RevisionId, i32>) -> NodeRow {
        let number = |id: Option<RevisionId>| id.and_then(|id| numbers.get(&id).copied());
        NodeRow {
            node: self.node,
            name: self.name,
            claim: self.claim,
            former: number(self.before),
            mark: match self.is_done {
                true => Mark::Done,
                false => Mark::NotBegun,
            },
            since: self.since,
            reason_code: self.reason_code,
            reason: self.reason,
            changed: self.changed,
            wrong: Vec::new(),
            failed_before: false,
            deferred_until: None,
            operation: self.operation,
            is_member: true,
            assigned: number(self.assigned),
            running: number(self.running),
            hold: self.hold,
            state: State::InService,
            entered_at: self.entered_at,
            state_reason: None,
            action: None,
            node_operation: None,
            open_operation: None,
            attempt: None,
            attempted_at: self.attempted_at,
            protected: self.protected,
            adopted: self.adopted,
            site: self.site,
            rack: self.rack,
            profile: self.profile,
            labels: self.labels.unwrap_or_default(),
            idle_since: None,
            failed_on_assigned: false,
            failed_phase: None,
            has_no_system: self.has_no_system,
            retried_at: None,
            requeue_agreed_at: None,
            waits_for_unit: false,
            unit_started: false,
            reinstall_planned: false,
            is_broken: false,
            served: self.served,
            held_back: self.held_back,
            out: self.out,
            written_off_until: self.written_off_until,
        }
    }
}

/// Lists all nodes of a rollout, with the facts of the resting ones.
async fn list_resting(conn: &mut PgConnection, id: RolloutId) -> Result<Vec<RestingRow>, Error> {
    Ok(sqlx::query_as!(
        RestingRow,
        r#"SELECT r.mark IN ('not_begun', 'done') AND r.wrong = '{}' AND NOT r.failed_before AND NOT r.reinstall_planned AND r.deferred_until IS NULL
                      AND r.idle_since IS NULL AND r.retried_at IS NULL AND r.requeue_agreed_at IS NULL AND r.unit_change IS NULL
                      AND c.state = 'bound' AND c.node_id = r.node_id AND c.pool_id = rollout.pool_id
                      AND n.state = 'in_service' AND n.reason IS NULL AND n.wish IS NULL AND n.operation_id IS NULL AND n.failed_phase IS NULL
                      AND n.waiting_reason IS NULL AS "is_resting!",
                  r.node_id AS "node: NodeId", n.name, r.claim_id AS "claim: ClaimId", r.before_id AS "before: RevisionId", c.assigned_id AS "assigned: RevisionId",
                  c.running_id AS "running: RevisionId", r.mark = 'done' AS "is_done!", r.since, r.reason_code, r.reason, r.changed,
                  r.operation_id AS "operation: OperationId", attempt.created_at AS "attempted_at?", c.hold, n.entered_at, n.protected, n.adopted,
                  n.site_id AS "site: ObjectId", n.rack_id AS "rack: ObjectId", n.profile_id AS "profile: ObjectId", NULLIF(n.labels, '{}') AS "labels: Labels",
                  n.os_host_key IS NULL AS "has_no_system!", c.served_at IS NOT NULL AS "served!",
                  n.held_back OR n.id IN (SELECT e.node_id FROM pair_ends e WHERE e.back_at IS NULL AND e.node_id IS NOT NULL) AS "held_back!",
                  CASE WHEN o.node_id IS NOT NULL AND n.state = 'in_service' AND (starts_with(o.reason, $2) AND o.seen_at <= n.entered_at) IS NOT TRUE
                       THEN concat_ws(': ', o.state, o.reason) END AS out,
                  c.written_off_until
           FROM rollout_nodes r JOIN rollouts rollout ON rollout.id = r.rollout_id
                JOIN nodes n ON n.id = r.node_id JOIN claims c ON c.id = r.claim_id
                LEFT JOIN operations attempt ON attempt.id = r.operation_id
                LEFT JOIN scheduler_outs o ON o.node_id = n.id
           WHERE r.rollout_id = $1"#,
        id as RolloutId,
        OUR_REASON,
    )
    .fetch_all(conn)
    .await?)
}

/// Returns the numbers of the revisions of nodes.
async fn number_revisions(
    conn: &mut PgConnection,
    rows: &[RestingRow],
) -> Result<BTreeMap<RevisionId, i32>, Error> {
    let ids = rows
        .iter()
        .flat_map(|row| [row.before, row.assigned, row.running]);
    let ids: BTreeSet<Uuid> = ids.flatten().map(|id| id.0).collect();
    let ids: Vec<Uuid> = ids.into_iter().collect();
    let found = sqlx::query!(
        r#"SELECT id AS "id: RevisionId", number FROM pool_revisions WHERE id = ANY ($1)"#,
        &ids
    );
    let found = found.fetch_all(conn).await?;
    Ok(found.into_iter().map(|row| (row.id, row.number)).collect())
}

/// Lists nodes of a rollout with all facts.
async fn list_busy(
    conn: &mut PgConnection,
    id: RolloutId,
    nodes: &[Uuid],
) -> Result<Vec<NodeRow>, Error> {
    Ok(sqlx::query_as!(
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
           WHERE r.rollout_id = $1 AND r.node_id = ANY ($4)"#,
        id as RolloutId,
        OUR_REASON,
        WaitReason::Unit.as_str(),
        nodes,
    )
    .fetch_all(conn)
    .await?)
}
