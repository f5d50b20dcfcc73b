//! Reads and writes of the engine for a node's lifecycle: due nodes, the snapshot, and the one
//! guarded advance.

use jiff::{SignedDuration, Timestamp};
use jiff_sqlx::ToSqlx as _;
use muster_core::claims::ClaimState;
use muster_core::gates::{Gate, Suite};
use muster_core::ids::{ClaimId, NodeId, ObjectId, OperationId};
use muster_core::lifecycle::decision::{Effect, Move};
use muster_core::lifecycle::snapshot::SchedulerOut;
use muster_core::lifecycle::state::{Action, Purpose, State};
use muster_core::lifecycle::wait::{Wait, WaitReason};
use muster_core::profiles::HardwareProfile;
use muster_core::recovery::{Recovery, RecoveryPolicy};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::recoveries::OpenRecovery;
use crate::error::Error;

/// A node as the engine loads it, locked for the rest of the transaction.
#[derive(Clone, Debug)]
pub struct EngineNode {
    pub id: NodeId,
    pub name: String,
    pub state: State,
    pub version: i64,
    pub visit: i64,
    pub entered_at: Timestamp,
    pub purpose: Option<Purpose>,
    pub failed_phase: Option<State>,
    pub reason: Option<String>,
    pub action: Option<Action>,
    pub action_reason: Option<String>,
    pub operation: Option<OperationId>,
    /// Whether the operation is still open.
    pub operation_open: bool,
    pub epoch: i64,
    pub protected: bool,
    /// The claim is on hold: automation must not change the node's software.
    pub held: bool,
    pub unsanitised: bool,
    pub maintenance_until: Option<Timestamp>,
    /// Cancellation of the node's operation was requested.
    pub stop: bool,
    pub in_cluster: bool,
    pub live: bool,
    pub installed: bool,
    /// The node was powered off when last observed.
    pub off: bool,
    pub power_person: Option<String>,
    pub power_reserved_w: i32,
    pub site: ObjectId,
    pub rack: Option<ObjectId>,
    pub profile: Option<HardwareProfile>,
    pub claim: Option<(ClaimId, ClaimState)>,
    pub undo_until: Option<Timestamp>,
    /// The scheduler's state and reason, if the node is in service but receives no jobs.
    pub scheduler: Option<SchedulerOut>,
    pub suite: Option<Suite>,
    /// The scheduler starts no job on the node, because of a sweep.
    pub held_back: bool,
    /// The suite of the sweep, if a sweep is requested.
    pub sweep: Option<Suite>,
    pub policy: Option<RecoveryPolicy>,
    /// The recovery under way, if any.
    pub recovery: Option<(Uuid, Recovery)>,
}

struct Row {
    id: NodeId,
    name: String,
    state: State,
    version: i64,
    visit: i64,
    entered_at: jiff_sqlx::Timestamp,
    purpose: Option<Purpose>,
    failed_phase: Option<State>,
    reason: Option<String>,
    action: Option<Action>,
    action_reason: Option<String>,
    operation: Option<OperationId>,
    operation_open: bool,
    epoch: i64,
    protected: bool,
    held: bool,
    unsanitised: bool,
    maintenance_until: Option<jiff_sqlx::Timestamp>,
    stop: bool,
    in_cluster: bool,
    live: bool,
    installed: bool,
    off: bool,
    power_person: Option<String>,
    power_reserved_w: i32,
    site: ObjectId,
    rack: Option<ObjectId>,
    profile: Option<Json<HardwareProfile>>,
    claim: Option<ClaimId>,
    claim_state: Option<ClaimState>,
    undo_until: Option<jiff_sqlx::Timestamp>,
    out_state: Option<String>,
    out_reason: Option<String>,
    out_steady: bool,
    held_back: bool,
    suite: Option<Json<Suite>>,
    sweep: Option<Json<Suite>>,
    policy: Option<Json<Option<RecoveryPolicy>>>,
    recovery: Option<Json<OpenRecovery>>,
    finder: Option<Json<Gate>>,
}

/// Locks one due node until the transaction ends. Nodes locked by another replica are skipped.
pub async fn lock_due(conn: &mut PgConnection, now: Timestamp) -> Result<Option<NodeId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: NodeId" FROM nodes WHERE due_at <= $1 ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED"#,
        now.to_sqlx() as _,
    )
    .fetch_optional(conn)
    .await?)
}

/// Loads a locked node with the declared objects around it. Locking is a separate statement: a
/// statement sees only data committed before its start, and a claim made just before the lock must
/// be visible.
///
/// # Errors
/// When a column of the row has an invalid value.
pub async fn get(conn: &mut PgConnection, node: NodeId) -> Result<EngineNode, Error> {
    sqlx::query_as!(
        Row,
        r#"SELECT n.id AS "id: NodeId", n.name, n.state, n.version, n.visit, n.entered_at, n.purpose, n.failed_phase, n.reason,
                  n.wish AS action, n.wish_reason AS action_reason, n.operation_id AS "operation: OperationId", o.id IS NOT NULL AS "operation_open!",
                  n.epoch, n.protected, n.in_cluster, n.held_back, n.unsanitised, n.maintenance_until,
                  COALESCE(o.cancel_asked_at IS NOT NULL, false) AS "stop!",
                  n.live_host_key IS NOT NULL AS "live!", n.os_host_key IS NOT NULL AS "installed!",
                  n.power_seen IS NOT DISTINCT FROM 'off' AS "off!", n.power_person,
                  n.power_reserved_w, n.site_id AS "site: ObjectId", n.rack_id AS "rack: ObjectId", profile.spec AS "profile?: Json<HardwareProfile>",
                  c.id AS "claim?: ClaimId", c.state AS "claim_state?", COALESCE(c.hold, false) AS "held!", c.undo_until, suite.spec AS "suite?: Json<Suite>",
                  o2.state AS "out_state?", o2.reason AS "out_reason?", (o2.since > n.entered_at AND o2.seen_at > o2.since) IS TRUE AS "out_steady!",
                  sweep.spec AS "sweep?: Json<Suite>", pool.spec #> '{health,recovery}' AS "policy?: Json<Option<RecoveryPolicy>>",
                  CASE WHEN r.id IS NOT NULL THEN to_jsonb(r) END AS "recovery?: Json<OpenRecovery>",
                  (SELECT finder.gate FROM recovery_finders finder WHERE finder.recovery_id = r.id) AS "finder: Json<Gate>"
           FROM nodes n
           LEFT JOIN objects profile ON profile.id = n.profile_id
           LEFT JOIN operations o ON o.id = n.operation_id AND o.finished_at IS NULL
           LEFT JOIN claims c ON c.node_id = n.id AND c.state <> 'released'
           LEFT JOIN objects pool ON pool.id = c.pool_id
           LEFT JOIN objects suite ON suite.kind = 'suite' AND suite.name = pool.spec ->> 'suite'
           LEFT JOIN objects sweep ON n.wish = 'sweep' AND sweep.kind = 'suite' AND sweep.name = pool.spec #>> '{health,sweep}'
           LEFT JOIN recoveries r ON r.node_id = n.id AND r.ended_at IS NULL
           LEFT JOIN scheduler_outs o2 ON o2.node_id = n.id AND n.state = 'in_service'
           WHERE n.id = $1"#,
        node as NodeId,
    )
    .fetch_one(conn)
    .await?
    .try_into()
}

/// Postpones a node after a failed reconcile pass, unless the node is already postponed.
pub async fn postpone(
    conn: &mut PgConnection,
    node: NodeId,
    until: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET due_at = $2, waiting_for = 'an error in Muster, which is in the server''s log', waiting_owner = 'muster',
                waiting_reason = $4, next_action = 'try again', waiting_since = $3
         WHERE id = $1 AND due_at <= $3",
        node as NodeId,
        until.to_sqlx() as _,
        now.to_sqlx() as _,
        WaitReason::MusterError.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Drops the requested action of a node, because the action is impossible in the node's state.
pub async fn drop_action(conn: &mut PgConnection, node: NodeId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET wish = NULL, wish_reason = NULL WHERE id = $1",
        node as NodeId
    )
    .execute(conn)
    .await?;
    Ok(())
}

impl TryFrom<Row> for EngineNode {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        Ok(Self {
            state: row.state,
            purpose: row.purpose,
            failed_phase: row.failed_phase,
            action: row.action,
            claim: row.claim.zip(row.claim_state),
            undo_until: row.undo_until.map(|at| at.to_jiff()),
            entered_at: row.entered_at.to_jiff(),
            id: row.id,
            name: row.name,
            version: row.version,
            visit: row.visit,
            reason: row.reason,
            action_reason: row.action_reason,
            operation: row.operation,
            operation_open: row.operation_open,
            epoch: row.epoch,
            protected: row.protected,
            held: row.held,
            unsanitised: row.unsanitised,
            maintenance_until: row.maintenance_until.map(|at| at.to_jiff()),
            stop: row.stop,
            in_cluster: row.in_cluster,
            held_back: row.held_back,
            live: row.live,
            installed: row.installed,
            off: row.off,
            power_person: row.power_person,
            power_reserved_w: row.power_reserved_w,
            site: row.site,
            rack: row.rack,
            profile: row.profile.map(|json| json.0),
            scheduler: row
                .out_state
                .map(|state| SchedulerOut::new(state, row.out_reason, row.out_steady)),
            suite: row
                .suite
                .map(|json| json.0.with_finder(row.finder.map(|json| json.0))),
            sweep: row.sweep.map(|json| json.0),
            policy: row.policy.and_then(|json| json.0),
            recovery: row
                .recovery
                .map(|json| json.0.opened())
                .transpose()
                .map_err(Error::internal)?,
        })
    }
}

/// Stores the wait condition of a node and the time of the next reconcile pass. `waiting_since`
/// changes only together with the condition.
pub async fn set_waiting(
    conn: &mut PgConnection,
    node: NodeId,
    wait: &Wait,
    due: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET waiting_for = $2, waiting_owner = $3, next_action = $4, due_at = $5, waiting_reason = $7,
                waiting_since = CASE WHEN waiting_for IS NOT DISTINCT FROM $2 THEN COALESCE(waiting_since, $6) ELSE $6 END
         WHERE id = $1",
        node as NodeId,
        wait.condition,
        wait.owner,
        wait.next_action,
        due.map(|due| due.to_sqlx()) as _,
        now.to_sqlx() as _,
        wait.reason.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Makes a node due at a time, or leaves an earlier due time. Called after a change the node may be
/// waiting for.
pub async fn make_due(conn: &mut PgConnection, node: NodeId, at: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET due_at = LEAST(COALESCE(due_at, $2), $2) WHERE id = $1",
        node as NodeId,
        at.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Moves a node to a state. No other code writes the state of a node. The update is guarded by id,
/// old state and version: zero updated rows mean a conflict, never an overwrite.
///
/// # Errors
/// [`Error::Conflict`] when the node was moved by another transaction.
pub async fn advance(
    conn: &mut PgConnection,
    node: &EngineNode,
    to: &Move,
    now: Timestamp,
) -> Result<(), Error> {
    let has = |effect| to.effects.contains(&effect);
    let deadline_s = node
        .profile
        .as_ref()
        .and_then(|profile| profile.deadlines_s.get(to.to.as_str()).copied())
        .or(to.to.default_deadline_s())
        .filter(|_| !to.to.is_steady());
    let deadline = deadline_s
        .map(|seconds| now + SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX)));
    let deadline = node
        .maintenance_until
        .filter(|_| to.to == State::Maintenance)
        .or(deadline);
    let moved = sqlx::query!(
        "UPDATE nodes SET state = $4, version = version + 1, visit = visit + 1, entered_at = $5, deadline_at = $6,
                purpose = $7, failed_phase = $8, reason = $9, due_at = $5, updated_at = $5,
                waiting_for = NULL, waiting_since = NULL, waiting_owner = NULL, waiting_reason = NULL, next_action = NULL,
                wish = CASE WHEN $10 THEN NULL ELSE wish END, wish_reason = CASE WHEN $10 THEN NULL ELSE wish_reason END,
                live_host_key = CASE WHEN $11 THEN NULL ELSE live_host_key END,
                live_boot_id = CASE WHEN $11 THEN NULL ELSE live_boot_id END,
                os_host_key = CASE WHEN $12 THEN NULL ELSE os_host_key END,
                os_boot_id = CASE WHEN $12 THEN NULL ELSE os_boot_id END,
                root_disk_serial = CASE WHEN $12 THEN NULL ELSE root_disk_serial END,
                in_cluster = CASE WHEN $13 THEN true WHEN $14 THEN false ELSE in_cluster END, adopted = adopted AND NOT $14,
                held_back = false,
                power_reserved_w = CASE WHEN $15 THEN 0 ELSE power_reserved_w END,
                unsanitised = CASE WHEN $4 = 'wiping' THEN true WHEN $16 THEN false ELSE unsanitised END,
                maintenance_until = CASE WHEN $2 = 'maintenance' THEN NULL ELSE maintenance_until END
         WHERE id = $1 AND state = $2 AND version = $3",
        node.id as NodeId,
        node.state.as_str(),
        node.version,
        to.to.as_str(),
        now.to_sqlx() as _,
        deadline.map(|at| at.to_sqlx()) as _,
        to.purpose.map(Purpose::as_str),
        to.failed_phase.map(State::as_str),
        to.reason,
        has(Effect::ActionTaken),
        has(Effect::ForgetLive),
        has(Effect::ForgetInstalled),
        has(Effect::JoinCluster),
        has(Effect::LeaveCluster),
        has(Effect::FreePower),
        has(Effect::Sanitised),
    )
    .execute(conn)
    .await?;
    match moved.rows_affected() {
        1 => Ok(()),
        _ => Err(Error::conflict(
            "node_moved",
            format!("{} was moved by somebody else", node.name),
        )),
    }
}

/// Changes to a node at the start of a step.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    pub operation: OperationId,
    /// The node's share of the rack's power, if none is reserved yet.
    pub reserve_w: Option<i32>,
    /// The scheduler's configuration may list the node from now on. Stored before the first attempt
    /// to add the node, so that a release always removes it again.
    pub joins_cluster: bool,
    /// The node's disks may hold tenant data and no reliable system from now on. Stored before the
    /// first write to the disks.
    pub destroys: bool,
    /// The scheduler may hold back jobs from now on, for a sweep. Stored before the request to the
    /// scheduler, so that the node is always returned to the scheduler.
    pub holds_back: bool,
}

/// Stores the changes at the start of a step, the wait condition and the time of the next pass.
/// Called before the step's job is queued.
pub async fn begin(
    conn: &mut PgConnection,
    node: NodeId,
    begun: &Begun,
    wait: &Wait,
    due: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET operation_id = $2, power_reserved_w = COALESCE($3, power_reserved_w), in_cluster = in_cluster OR $4,
                unsanitised = unsanitised OR $5, adopted = adopted AND NOT $5, held_back = held_back OR $11, os_host_key = CASE WHEN $5 THEN NULL ELSE os_host_key END,
                os_boot_id = CASE WHEN $5 THEN NULL ELSE os_boot_id END, waiting_for = $6, waiting_owner = $7, next_action = $8, due_at = $9,
                waiting_reason = $12,
                waiting_since = CASE WHEN waiting_for IS NOT DISTINCT FROM $6 THEN COALESCE(waiting_since, $10) ELSE $10 END
         WHERE id = $1",
        node as NodeId,
        begun.operation as OperationId,
        begun.reserve_w,
        begun.joins_cluster,
        begun.destroys,
        wait.condition,
        wait.owner,
        wait.next_action,
        due.to_sqlx() as _,
        now.to_sqlx() as _,
        begun.holds_back,
        wait.reason.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Sets the deadline of a node. For a maintenance the time given by a person is the deadline, after
/// which the node counts as stuck.
pub async fn set_deadline(
    conn: &mut PgConnection,
    node: NodeId,
    at: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET deadline_at = $2 WHERE id = $1",
        node as NodeId,
        at.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}
