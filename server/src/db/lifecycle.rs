//! What the engine reads and writes of a node's way: due nodes, the snapshot, and the one guarded advance.

use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use jiff_sqlx::ToSqlx as _;
use muster_core::claims::ClaimState;
use muster_core::gates::{Gate, Suite};
use muster_core::ids::{ClaimId, NodeId, ObjectId, OperationId};
use muster_core::lifecycle::decision::{Effect, Move, Wait};
use muster_core::lifecycle::snapshot::SchedulerOut;
use muster_core::lifecycle::state::{Purpose, State, UnknownWord, Wish};
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
    pub wish: Option<Wish>,
    pub wish_reason: Option<String>,
    pub operation: Option<OperationId>,
    /// Whether that operation is still under way.
    pub operation_open: bool,
    pub epoch: i64,
    pub protected: bool,
    /// Nothing that happens by itself changes what it runs.
    pub held: bool,
    pub unsanitised: bool,
    pub maintenance_until: Option<Timestamp>,
    /// Its operation was asked to stop.
    pub stop: bool,
    pub in_cluster: bool,
    pub live: bool,
    pub installed: bool,
    /// As it was seen last.
    pub off: bool,
    pub power_person: Option<String>,
    pub power_reserved_w: i32,
    pub site: ObjectId,
    pub rack: Option<ObjectId>,
    pub profile: Option<HardwareProfile>,
    pub claim: Option<(ClaimId, ClaimState)>,
    pub undo_until: Option<Timestamp>,
    /// Where its scheduler gives it no jobs although it serves.
    pub scheduler: Option<SchedulerOut>,
    pub suite: Option<Suite>,
    /// Its scheduler starts no job there for a sweep.
    pub held_back: bool,
    /// Where it was asked to sweep.
    pub sweep: Option<Suite>,
    pub policy: Option<RecoveryPolicy>,
    /// What is tried on it, while something is.
    pub recovery: Option<(Uuid, Recovery)>,
}

struct Row {
    id: NodeId,
    name: String,
    state: String,
    version: i64,
    visit: i64,
    entered_at: jiff_sqlx::Timestamp,
    purpose: Option<String>,
    failed_phase: Option<String>,
    reason: Option<String>,
    wish: Option<String>,
    wish_reason: Option<String>,
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
    claim_state: Option<String>,
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

/// Locks one due node, skipping those another replica works on, until the transaction ends.
pub async fn lock_due(conn: &mut PgConnection, now: Timestamp) -> Result<Option<NodeId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: NodeId" FROM nodes WHERE due_at <= $1 ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED"#,
        now.to_sqlx() as _,
    )
    .fetch_optional(conn)
    .await?)
}

/// Loads a locked node with what is declared around it. Apart from the locking: a statement sees what was committed before it began, and a
/// claim that was made just before the lock must be seen.
///
/// # Errors
/// When the database fails or the row is impossible.
pub async fn get(conn: &mut PgConnection, node: NodeId) -> Result<EngineNode, Error> {
    sqlx::query_as!(
        Row,
        r#"SELECT n.id AS "id: NodeId", n.name, n.state, n.version, n.visit, n.entered_at, n.purpose, n.failed_phase, n.reason,
                  n.wish, n.wish_reason, n.operation_id AS "operation: OperationId", o.id IS NOT NULL AS "operation_open!",
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

/// Puts a node off whose turn went wrong, unless something else has put it off already.
pub async fn postpone(
    conn: &mut PgConnection,
    node: NodeId,
    until: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET due_at = $2, waiting_for = 'an error in Muster, which is in the server''s log', waiting_owner = 'muster',
                next_action = 'try again', waiting_since = $3
         WHERE id = $1 AND due_at <= $3",
        node as NodeId,
        until.to_sqlx() as _,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Drops what was asked of a node: it cannot be done where the node is.
pub async fn drop_wish(conn: &mut PgConnection, node: NodeId) -> Result<(), Error> {
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
        let impossible =
            |what: String| Error::internal(anyhow::anyhow!("nodes row {}: {what}", row.id));
        let word = |error: UnknownWord| impossible(error.to_string());
        let claim_state = match row.claim_state.as_deref() {
            None => None,
            Some("bound") => Some(ClaimState::Bound),
            Some("releasing") => Some(ClaimState::Releasing),
            Some(other) => return Err(impossible(format!("claim state {other:?}"))),
        };
        Ok(Self {
            state: row.state.parse().map_err(word)?,
            purpose: parse(row.purpose.as_deref()).map_err(word)?,
            failed_phase: parse(row.failed_phase.as_deref()).map_err(word)?,
            wish: parse(row.wish.as_deref()).map_err(word)?,
            claim: row.claim.zip(claim_state),
            undo_until: row.undo_until.map(|at| at.to_jiff()),
            entered_at: row.entered_at.to_jiff(),
            id: row.id,
            name: row.name,
            version: row.version,
            visit: row.visit,
            reason: row.reason,
            wish_reason: row.wish_reason,
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
            scheduler: row.out_state.map(|state| SchedulerOut {
                state,
                reason: row.out_reason,
                steady: row.out_steady,
            }),
            suite: row
                .suite
                .map(|json| json.0.with_finder(row.finder.map(|json| json.0))),
            sweep: row.sweep.map(|json| json.0),
            policy: row.policy.and_then(|json| json.0),
            recovery: row
                .recovery
                .map(|json| json.0.opened())
                .transpose()
                .map_err(word)?,
        })
    }
}

/// Reads a nullable column of words.
fn parse<T: FromStr>(word: Option<&str>) -> Result<Option<T>, T::Err> {
    word.map(str::parse).transpose()
}

/// Writes why a node waits, and when to look again. `since` moves only when the awaited thing does.
pub async fn set_waiting(
    conn: &mut PgConnection,
    node: NodeId,
    wait: &Wait,
    due: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET waiting_for = $2, waiting_owner = $3, next_action = $4, due_at = $5,
                waiting_since = CASE WHEN waiting_for IS NOT DISTINCT FROM $2 THEN COALESCE(waiting_since, $6) ELSE $6 END
         WHERE id = $1",
        node as NodeId,
        wait.condition,
        wait.owner,
        wait.next_action,
        due.map(|due| due.to_sqlx()) as _,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Makes a node due: something it may wait for has changed.
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

/// The only place that writes a node's state. Guarded by id, old state and version: zero rows is a conflict, never an overwrite.
///
/// # Errors
/// [`Error::Conflict`] when the node was moved by somebody else; otherwise when the database fails.
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
                waiting_for = NULL, waiting_since = NULL, waiting_owner = NULL, next_action = NULL,
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
        has(Effect::WishTaken),
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

/// What begins with a step.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    pub operation: OperationId,
    /// Its share of the rack's power, where it holds none yet.
    pub reserve_w: Option<i32>,
    /// The scheduler's configuration may list the node from now on: said before the first attempt to put it there, so that a release always
    /// takes it out again.
    pub joins_cluster: bool,
    /// The node's disks may hold somebody's data from now on, and no system that can be relied on: said before anything is written.
    pub destroys: bool,
    /// Its scheduler may start no job there from now on, for a sweep: said before it is asked, so that it is always asked to use the node again.
    pub holds_back: bool,
}

/// Writes down what begins, before its job is there, what the node waits for now, and when to look again.
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
                unsanitised = unsanitised OR $5, held_back = held_back OR $11, os_host_key = CASE WHEN $5 THEN NULL ELSE os_host_key END,
                os_boot_id = CASE WHEN $5 THEN NULL ELSE os_boot_id END, waiting_for = $6, waiting_owner = $7, next_action = $8, due_at = $9,
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
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The time a person gave for a maintenance is when it counts as stuck.
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
