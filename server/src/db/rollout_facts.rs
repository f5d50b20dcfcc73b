//! The nodes of a rollout with the facts of their claims and lifecycles, for the planner.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use muster_api::operations::OperationState;
use muster_core::clusters::slurm::OUR_REASON;
use muster_core::ids::{NodeId, ObjectId, OperationId, RevisionId, RolloutId};
use muster_core::lifecycle::state::{Action, State};
use muster_core::lifecycle::wait::WaitReason;
use muster_core::rollout::{DomainAxis, Mark, Member, NodePlace, list_domains};
use serde::Deserialize;
use sqlx::PgConnection;
use sqlx::types::Json;
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
    /// Number of the revision assigned before the rollout took the node.
    pub former: Option<i32>,
    pub mark: Mark,
    pub since: Timestamp,
    pub reason_code: Option<String>,
    pub reason: Option<String>,
    pub changed: bool,
    pub wrong: Vec<String>,
    pub failed_before: bool,
    pub deferred_until: Option<Timestamp>,
    pub operation: Option<OperationId>,
    /// The claim still holds the node for the pool.
    pub is_member: bool,
    pub assigned: Option<i32>,
    pub running: Option<i32>,
    pub hold: bool,
    pub state: State,
    /// The entry into the state.
    pub entered_at: Timestamp,
    /// The reason of the state. `None` for most nodes in service.
    pub state_reason: Option<String>,
    pub action: Option<Action>,
    /// The node's last operation is the present attempt. Without meaning for a node without an attempt.
    pub is_attempt: bool,
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
    pub idle_since: Option<Timestamp>,
    /// The node failed in another rollout, on the assigned revision, and no other request has had it
    /// since.
    pub failed_on_assigned: bool,
    /// The state that failed, of a failed node.
    pub failed_phase: Option<State>,
    /// No system is installed: an image write was begun, and did not end.
    pub has_no_system: bool,
    /// The last retry by a person.
    pub retried_at: Option<Timestamp>,
    /// A person agreed to requeue the node's jobs, in the present wait.
    pub requeue_agreed_at: Option<Timestamp>,
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

/// Lists the nodes of a rollout with their facts, ordered by name.
pub async fn list_nodes(conn: &mut PgConnection, id: RolloutId) -> Result<Vec<NodeRow>, Error> {
    let rows = list_rows(conn, id).await?;
    let numbers = number_revisions(conn, &rows).await?;
    let complete = |row: Row| row.complete(&numbers);
    let mut nodes: Vec<NodeRow> = rows.into_iter().map(complete).collect();
    // A sort of such wide rows is slow in the database. Here each row moves once.
    nodes.sort_by_cached_key(|node| node.name.clone());
    Ok(nodes)
}

/// A node as read from the database.
struct Row {
    node: NodeId,
    name: String,
    before: Option<RevisionId>,
    assigned: Option<RevisionId>,
    running: Option<RevisionId>,
    mark: Mark,
    since: Timestamp,
    reason_code: Option<String>,
    reason: Option<String>,
    changed: bool,
    operation: Option<OperationId>,
    entered_at: Timestamp,
    attempted_at: Option<jiff_sqlx::Timestamp>,
    site: ObjectId,
    rack: Option<ObjectId>,
    profile: Option<ObjectId>,
    /// `None` without a label.
    labels: Option<Labels>,
    reinstall_planned: bool,
    out: Option<String>,
    written_off_until: Option<jiff_sqlx::Timestamp>,
    /// `None` for a node in service whose facts are those of [`Rare::default`].
    rare: Option<Json<Rare>>,
}

/// Facts that are the same for most nodes of a large rollout. The members are those of [`NodeRow`].
/// Each column of a row costs the database more than the comparison of a fact.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rare {
    is_member: bool,
    hold: bool,
    state: State,
    protected: bool,
    adopted: bool,
    has_no_system: bool,
    served: bool,
    held_back: bool,
    attempt: Option<OperationState>,
    is_attempt: bool,
    wrong: Vec<String>,
    failed_before: bool,
    deferred_until: Option<Timestamp>,
    state_reason: Option<String>,
    action: Option<Action>,
    open_operation: Option<String>,
    idle_since: Option<Timestamp>,
    failed_on_assigned: bool,
    failed_phase: Option<State>,
    retried_at: Option<Timestamp>,
    requeue_agreed_at: Option<Timestamp>,
    waits_for_unit: bool,
    unit_started: bool,
    is_broken: bool,
}

impl Default for Rare {
    /// Returns the facts of a member in service without work, wait and fault.
    fn default() -> Self {
        Self {
            is_member: true,
            hold: false,
            state: State::InService,
            protected: false,
            adopted: false,
            has_no_system: false,
            served: true,
            held_back: false,
            attempt: None,
            is_attempt: false,
            wrong: Vec::new(),
            failed_before: false,
            deferred_until: None,
            state_reason: None,
            action: None,
            open_operation: None,
            idle_since: None,
            failed_on_assigned: false,
            failed_phase: None,
            retried_at: None,
            requeue_agreed_at: None,
            waits_for_unit: false,
            unit_started: false,
            is_broken: false,
        }
    }
}

impl Row {
    fn complete(self, numbers: &HashMap<RevisionId, i32>) -> NodeRow {
        let number = |id: Option<RevisionId>| numbers.get(&id?).copied();
        let rare = self.rare.map(|rare| rare.0).unwrap_or_default();
        NodeRow {
            node: self.node,
            name: self.name,
            former: number(self.before),
            mark: self.mark,
            since: self.since,
            reason_code: self.reason_code,
            reason: self.reason,
            changed: self.changed,
            wrong: rare.wrong,
            failed_before: rare.failed_before,
            deferred_until: rare.deferred_until,
            operation: self.operation,
            is_member: rare.is_member,
            assigned: number(self.assigned),
            running: number(self.running),
            hold: rare.hold,
            state: rare.state,
            entered_at: self.entered_at,
            state_reason: rare.state_reason,
            action: rare.action,
            is_attempt: rare.is_attempt,
            open_operation: rare.open_operation,
            attempt: rare.attempt,
            attempted_at: self.attempted_at,
            protected: rare.protected,
            adopted: rare.adopted,
            site: self.site,
            rack: self.rack,
            profile: self.profile,
            labels: self.labels.unwrap_or_default(),
            idle_since: rare.idle_since,
            failed_on_assigned: rare.failed_on_assigned,
            failed_phase: rare.failed_phase,
            has_no_system: rare.has_no_system,
            retried_at: rare.retried_at,
            requeue_agreed_at: rare.requeue_agreed_at,
            waits_for_unit: rare.waits_for_unit,
            unit_started: rare.unit_started,
            reinstall_planned: self.reinstall_planned,
            is_broken: rare.is_broken,
            served: rare.served,
            held_back: rare.held_back,
            out: self.out,
            written_off_until: self.written_off_until,
        }
    }
}

/// Reads the rows of a rollout's nodes, without order.
async fn list_rows(conn: &mut PgConnection, id: RolloutId) -> Result<Vec<Row>, Error> {
    Ok(sqlx::query_as!(
        Row,
        r#"SELECT r.node_id AS "node: NodeId", n.name, r.before_id AS "before: RevisionId", c.assigned_id AS "assigned: RevisionId", c.running_id AS "running: RevisionId",
                  r.mark AS "mark: Mark", r.since, r.reason_code, r.reason, r.changed, r.operation_id AS "operation: OperationId", n.entered_at,
                  attempt.created_at AS "attempted_at?", n.site_id AS "site: ObjectId", n.rack_id AS "rack: ObjectId", n.profile_id AS "profile: ObjectId",
                  NULLIF(n.labels, '{}') AS "labels: Labels", r.reinstall_planned,
                  CASE WHEN o.node_id IS NOT NULL AND n.state = 'in_service' AND (starts_with(o.reason, $2) AND o.seen_at <= n.entered_at) IS NOT TRUE
                       THEN concat_ws(': ', o.state, o.reason) END AS out,
                  c.written_off_until,
                  CASE WHEN r.mark IN ('waiting', 'changing', 'validating') OR n.state <> 'in_service' OR r.wrong <> '{}' OR r.failed_before
                            OR (c.state = 'bound' AND c.node_id = r.node_id AND c.pool_id = rollout.pool_id) IS NOT TRUE
                            OR c.hold OR n.protected OR n.adopted OR n.held_back OR held.node_id IS NOT NULL OR n.waiting_reason IS NOT DISTINCT FROM $3
                            OR num_nulls(n.os_host_key, c.served_at) > 0
                            OR num_nonnulls(r.deferred_until, r.idle_since, r.retried_at, r.requeue_agreed_at, r.unit_change, n.wish, open.id) > 0
                       THEN jsonb_build_object(
                           'is_member', (c.state = 'bound' AND c.node_id = r.node_id AND c.pool_id = rollout.pool_id) IS TRUE, 'hold', c.hold, 'state', n.state,
                           'protected', n.protected, 'adopted', n.adopted, 'has_no_system', n.os_host_key IS NULL, 'served', c.served_at IS NOT NULL,
                           'held_back', n.held_back OR held.node_id IS NOT NULL, 'attempt', attempt.state,
                           'is_attempt', r.operation_id IS NOT DISTINCT FROM n.operation_id,
                           'wrong', r.wrong, 'failed_before', r.failed_before, 'deferred_until', r.deferred_until, 'state_reason', n.reason, 'action', n.wish,
                           'open_operation', open.kind, 'idle_since', r.idle_since, 'failed_phase', n.failed_phase, 'retried_at', r.retried_at,
                           'requeue_agreed_at', r.requeue_agreed_at, 'waits_for_unit', n.waiting_reason IS NOT DISTINCT FROM $3,
                           'unit_started', r.unit_change IS NOT DISTINCT FROM 'started',
                           'failed_on_assigned', n.state IN ('failed', 'quarantined') AND EXISTS (
                               SELECT FROM rollout_nodes f JOIN rollouts o ON o.id = f.rollout_id
                               WHERE f.node_id = r.node_id AND f.claim_id = r.claim_id AND f.rollout_id <> r.rollout_id
                                     AND (f.mark = 'failed' OR f.mark = 'changing' AND n.state = 'failed')
                                     AND (f.operation_id = n.operation_id OR f.since >= n.entered_at) AND o.target_id = c.assigned_id)
                               AND NOT EXISTS (
                                   SELECT FROM operations q WHERE q.node_id = r.node_id AND q.kind = 'quarantine' AND q.state <> 'cancelled'
                                          AND q.finished_at >= n.entered_at),
                           'is_broken', r.mark = 'done' AND r.changed AND n.state IN ('repairing', 'quarantined', 'failed')
                               AND n.purpose IS DISTINCT FROM 'maintenance') END AS "rare: Json<Rare>"
           FROM rollout_nodes r JOIN rollouts rollout ON rollout.id = r.rollout_id
                JOIN nodes n ON n.id = r.node_id JOIN claims c ON c.id = r.claim_id
                LEFT JOIN operations open ON open.id = n.operation_id AND open.finished_at IS NULL
                LEFT JOIN operations attempt ON attempt.id = r.operation_id
                LEFT JOIN scheduler_outs o ON o.node_id = n.id
                LEFT JOIN pair_ends held ON held.node_id = n.id AND held.back_at IS NULL
           WHERE r.rollout_id = $1"#,
        id as RolloutId,
        OUR_REASON,
        WaitReason::Unit.as_str(),
    )
    .fetch_all(conn)
    .await?)
}

/// Returns the numbers of the revisions of nodes. A lookup by node in the database is slower.
async fn number_revisions(
    conn: &mut PgConnection,
    rows: &[Row],
) -> Result<HashMap<RevisionId, i32>, Error> {
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
