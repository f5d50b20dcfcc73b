//! One node's turn: load it locked, decide, persist the answer and its event, commit.

use jiff::{SignedDuration, Timestamp};
use muster_core::facts::Facts;
use muster_core::ids::{JobId, NodeId, ObjectId, OperationId, PermitId};
use muster_core::lifecycle::decide;
use muster_core::lifecycle::decision::{Decision, Effect, Move, Wait};
use muster_core::lifecycle::snapshot::{PowerShare, Snapshot, StepStatus};
use muster_core::lifecycle::state::{State, Wish};
use muster_core::lifecycle::steps::Step;
use muster_core::lifecycle::table;
use muster_core::permits::PermitKind;
use muster_core::wire::agent::JobResult;
use serde_json::json;
use sqlx::PgConnection;

use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::jobs::{NewJob, StayStep};
use crate::db::lifecycle::EngineNode;
use crate::db::permits::NewPermit;
use crate::error::Error;

/// A waiting node is looked at again after this time even if nothing woke it.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// A node whose turn went wrong gets another one after this time.
const AFTER_ERROR: SignedDuration = SignedDuration::from_secs(10);

/// A permit outlives its step's timeout by this: redemption happens at the start of an attempt.
const PERMIT_GRACE_S: i64 = 60;

/// Moves in one turn: a node that enters a state begins its work there at once. More than a way without work in it can have.
const MOVES: usize = 8;

/// What a turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// An agent has something to do.
    QueuedJob,
    Other,
}

/// What became of a decision.
enum Done {
    Moved { freed_power: bool },
    QueuedJob,
    Waits,
}

/// Gives one due node its turn; `None` when none is due.
pub(super) async fn take(app: &App) -> Result<Option<Turn>, Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let Some(node) = db::lifecycle::lock_due(&mut tx, now).await? else { return Ok(None) };
    match give(&mut tx, node, now).await {
        Ok((turn, freed)) => {
            tx.commit().await?;
            if let Some(rack) = freed {
                // Apart: it holds the rack, for which the turns of its nodes wait, and must hold no node meanwhile. Should it not come to this,
                // those that wait for power look again by themselves.
                let mut tx = app.pool.begin().await?;
                db::lifecycle::wake_rack(&mut tx, rack, now).await?;
                tx.commit().await?;
            }
            Ok(Some(turn))
        }
        Err(error @ Error::Unavailable(_)) => Err(error),
        // Somebody else was in the way, and the database let them pass: the node is still due, and has its turn again.
        Err(error @ Error::Contended(_)) => {
            tx.rollback().await?;
            tracing::info!(%node, error = ?error, "a node's turn is taken again");
            Ok(Some(Turn::Other))
        }
        // The node that is due longest comes first: one whose turn goes wrong must not keep all others waiting.
        Err(error) => {
            tx.rollback().await?;
            tracing::error!(%node, error = ?error, "a node's turn went wrong");
            db::lifecycle::postpone(&mut *app.pool.acquire().await?, node, now + AFTER_ERROR, now).await?;
            Ok(Some(Turn::Other))
        }
    }
}

/// One decision after the other, until there is something to wait for. The rack whose power was freed on the way.
async fn give(conn: &mut PgConnection, id: NodeId, now: Timestamp) -> Result<(Turn, Option<ObjectId>), Error> {
    let mut freed = None;
    for _ in 0..MOVES {
        let node = db::lifecycle::get(conn, id).await?;
        let stay = db::jobs::list_stay(conn, node.id, node.visit, node.operation).await?;
        let decision = settle(conn, &node, &stay, now).await?;
        match persist(conn, &node, &stay, decision, now).await? {
            Done::Moved { freed_power } => freed = freed.or(node.rack.filter(|_| freed_power)),
            Done::QueuedJob => return Ok((Turn::QueuedJob, freed)),
            Done::Waits => return Ok((Turn::Other, freed)),
        }
    }
    // Still due: it goes on in its next turn.
    Ok((Turn::Other, freed))
}

/// What the lifecycle decides, as the rack's power and a caution allow it.
async fn settle(
    conn: &mut PgConnection,
    node: &EngineNode,
    stay: &[StayStep],
    now: Timestamp,
) -> Result<Decision, Error> {
    let mut snapshot = snapshot(conn, node, stay).await?;
    let mut decision = decide(&snapshot, now);
    if let Decision::Start(step) = decision
        && step.powers_on()
        && node.power_reserved_w == 0
    {
        // Decided again with the rack held: two nodes cannot share out the same watts.
        snapshot.power = db::lifecycle::power_share(conn, node).await?;
        decision = decide(&snapshot, now);
    }
    let next = match &decision {
        Decision::Start(step) | Decision::Retry(step, _) => Some(*step),
        // Queued, and no agent is given it.
        Decision::Wait(_) => snapshot.active().filter(|view| view.status == StepStatus::Queued).map(|view| view.step),
        Decision::Advance(_) | Decision::Cancel(_) | Decision::Granted(_) | Decision::Refused(_) => None,
    };
    if let Some(step) = next.filter(|step| permit_kind(*step).is_some())
        && let Some(caution) = db::cautions::find_open(conn).await?
    {
        return Ok(Decision::Wait(careful(step, caution.because)));
    }
    Ok(decision)
}

/// Why a step that powers or writes is not begun.
fn careful(step: Step, because: String) -> Wait {
    Wait {
        condition: format!("caution mode: {because}"),
        owner: "an administrator".into(),
        next_action: format!("{} once `muster caution confirm` was run", step.title()),
        until: None,
    }
}

async fn snapshot(conn: &mut PgConnection, node: &EngineNode, stay: &[StayStep]) -> Result<Snapshot, Error> {
    let result = |wanted: Step| stay.iter().find(|step| step.view.step == wanted).and_then(|step| step.result.as_ref());
    let gates = |wanted| match result(wanted) {
        Some(JobResult::Gated { results, .. }) => results.clone(),
        _ => Vec::new(),
    };
    let converged = result(Step::Recheck).or_else(|| result(Step::Converge)).and_then(|result| match result {
        JobResult::Converged(report) => Some(report.clone()),
        _ => None,
    });
    let facts: Option<Facts> = match result(Step::Inventory) {
        Some(JobResult::Facts { facts }) => Some((**facts).clone()),
        _ => None,
    };
    Ok(Snapshot {
        name: node.name.clone(),
        state: node.state,
        entered_at: node.entered_at,
        purpose: node.purpose,
        failed_phase: node.failed_phase,
        reason: node.reason.clone(),
        wish: node.wish,
        wish_reason: node.wish_reason.clone(),
        claim: node.claim.map(|(_, state)| state),
        undo_until: node.undo_until,
        protected: node.protected,
        unsanitised: node.unsanitised,
        until: node.maintenance_until,
        stop: node.stop,
        disputed_parts: match node.state {
            State::Inspecting => db::components::list_disputed(conn, node.id).await?,
            _ => Vec::new(),
        },
        in_cluster: node.in_cluster,
        live: node.live,
        installed: node.installed,
        power_person: node.power_person.clone(),
        // Asked for only when it decides.
        power: PowerShare { reserved: node.power_reserved_w > 0, ..PowerShare::default() },
        steps: stay.iter().map(|step| step.view.clone()).collect(),
        profile: node.profile.clone(),
        facts,
        converged,
        suite: node.suite.clone(),
        gates: gates(Step::Gates),
        gates_after_reboot: gates(Step::GatesAfterReboot),
    })
}

async fn persist(
    conn: &mut PgConnection,
    node: &EngineNode,
    stay: &[StayStep],
    decision: Decision,
    now: Timestamp,
) -> Result<Done, Error> {
    match decision {
        Decision::Wait(wait) => {
            let open = |step: &StayStep| {
                matches!(step.view.status, StepStatus::Queued | StepStatus::Running { .. } | StepStatus::Lost)
            };
            if !stay.iter().any(open) {
                refuse_wish(conn, node, &wait, now).await?;
            }
            let again = (!node.state.is_steady()).then(|| now + LOOK_AGAIN);
            let due = wait.until.or(again);
            db::lifecycle::set_waiting(conn, node.id, &wait, due, now).await?;
            Ok(Done::Waits)
        }
        Decision::Start(step) => start(conn, node, step, now).await.map(|()| Done::QueuedJob),
        Decision::Retry(step, not_before) => {
            retry(conn, node, stay, step, (now, not_before)).await.map(|()| Done::QueuedJob)
        }
        Decision::Cancel(step) => {
            if let Some(job) = find(stay, step) {
                db::jobs::cancel(conn, job.id, now).await?;
            }
            let wait = Wait {
                condition: format!("the running step to stop: {}", step.title()),
                owner: "agent".into(),
                next_action: "go on once it has stopped".into(),
                until: None,
            };
            // Looked at again soon: a queued job is cancelled at once, a running one when its worker hears of it.
            let soon = now + SignedDuration::from_secs(1);
            db::lifecycle::set_waiting(conn, node.id, &wait, Some(soon), now).await?;
            Ok(Done::Waits)
        }
        Decision::Advance(to) => {
            advance(conn, node, &to, now).await?;
            Ok(Done::Moved { freed_power: to.effects.contains(&Effect::FreePower) })
        }
        Decision::Granted(what) => {
            granted(conn, node, &what, now).await?;
            Ok(Done::Moved { freed_power: false })
        }
        Decision::Refused(why) => {
            db::lifecycle::drop_wish(conn, node.id).await?;
            if let Some(wish) = node.wish {
                refused(conn, node, wish, &why, now).await?;
            }
            db::lifecycle::make_due(conn, node.id, now).await?;
            Ok(Done::Moved { freed_power: false })
        }
    }
}

/// A wish that a resting node does not take is over: it would keep every other from being asked. A release is the claim's to remember.
async fn refuse_wish(conn: &mut PgConnection, node: &EngineNode, wait: &Wait, now: Timestamp) -> Result<(), Error> {
    let Some(wish) = node.wish.filter(|wish| node.state.is_resting() && *wish != Wish::Release) else { return Ok(()) };
    db::lifecycle::drop_wish(conn, node.id).await?;
    refused(conn, node, wish, &format!("it is {} and waits for {}", node.state, wait.condition), now).await
}

/// Ends the operation of a wish that was granted where the node is.
async fn granted(conn: &mut PgConnection, node: &EngineNode, what: &str, now: Timestamp) -> Result<(), Error> {
    db::lifecycle::drop_wish(conn, node.id).await?;
    if let Some(until) = node.maintenance_until.filter(|_| node.state == State::Maintenance) {
        db::lifecycle::set_deadline(conn, node.id, until).await?;
    }
    if let Some(operation) = node.operation {
        db::operations::end(conn, operation, "succeeded", what, now).await?;
    }
    let event = NewEvent::node(now, "muster", "node.wish_granted", node.id, format!("{}: {what}", node.name));
    db::events::insert(conn, event.under(node.operation).with(json!({ "wish": node.wish }))).await?;
    db::lifecycle::make_due(conn, node.id, now).await
}

/// Ends the operation of a wish that was not granted.
async fn refused(
    conn: &mut PgConnection,
    node: &EngineNode,
    wish: Wish,
    why: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let summary = format!("{} was not granted: {why}", wish.as_str());
    if let Some(operation) = node.operation {
        let state = if node.stop { "cancelled" } else { "failed" };
        db::operations::end(conn, operation, state, &summary, now).await?;
    }
    let event = NewEvent::node(now, "muster", "node.wish_refused", node.id, format!("{}: {summary}", node.name));
    db::events::insert(conn, event.under(node.operation).with(json!({ "wish": wish }))).await
}

fn find(stay: &[StayStep], step: Step) -> Option<&StayStep> {
    stay.iter().find(|known| known.view.step == step)
}

async fn start(conn: &mut PgConnection, node: &EngineNode, step: Step, now: Timestamp) -> Result<(), Error> {
    let operation = operation(conn, node, step, now).await?;
    let id = JobId::new();
    let permit = permit_id(step);
    if step.powers_on() && node.power_reserved_w == 0 {
        let watts = node.profile.as_ref().map_or(0, |profile| profile.power_max_w);
        db::lifecycle::reserve_power(conn, node.id, i32::try_from(watts).unwrap_or(i32::MAX)).await?;
    }
    if step == Step::Admit {
        db::lifecycle::set_in_cluster(conn, node.id).await?;
    }
    if step.destroys() {
        db::lifecycle::set_unsanitised(conn, node.id).await?;
    }
    let job = NewJob {
        id,
        node: node.id,
        site: node.site,
        operation,
        visit: node.visit,
        step,
        epoch: node.epoch,
        nonce: nonce(),
        permit,
    };
    db::jobs::insert(conn, &job, now).await?;
    mint(conn, node, step, id, operation, permit, now).await?;
    db::operations::run(conn, operation, step.title(), now).await?;
    let started = NewEvent::node(now, "muster", "step.queued", node.id, format!("{}: {}", node.name, step.title()));
    db::events::insert(conn, started.under(Some(operation)).with(json!({ "step": step, "job": id }))).await?;
    wait_for_job(conn, node, step, now).await
}

async fn retry(
    conn: &mut PgConnection,
    node: &EngineNode,
    stay: &[StayStep],
    step: Step,
    (now, not_before): (Timestamp, Timestamp),
) -> Result<(), Error> {
    let Some(job) = find(stay, step) else { return Ok(()) };
    let not_before = not_before.max(now);
    let operation = operation(conn, node, step, now).await?;
    let permit = permit_id(step);
    db::jobs::retry(conn, job.id, &nonce(), permit, operation, not_before).await?;
    mint(conn, node, step, job.id, operation, permit, not_before).await?;
    let round = job.view.round + 1;
    let summary = format!("{}: {} again, round {round}", node.name, step.title());
    let event = NewEvent::node(now, "muster", "step.retried", node.id, summary).under(Some(operation));
    db::events::insert(conn, event.with(json!({ "step": step, "job": job.id, "round": round }))).await?;
    wait_for_job(conn, node, step, now).await
}

async fn wait_for_job(conn: &mut PgConnection, node: &EngineNode, step: Step, now: Timestamp) -> Result<(), Error> {
    let wait = Wait {
        condition: format!("the site's agent to take the job: {}", step.title()),
        owner: "agent".into(),
        next_action: step.title().into(),
        until: None,
    };
    db::lifecycle::set_waiting(conn, node.id, &wait, Some(now + LOOK_AGAIN), now).await
}

/// The operation this work belongs to; opened by Muster itself where nobody's is open.
async fn operation(
    conn: &mut PgConnection,
    node: &EngineNode,
    step: Step,
    now: Timestamp,
) -> Result<OperationId, Error> {
    if let Some(operation) = node.operation.filter(|_| node.operation_open) {
        return Ok(operation);
    }
    db::operations::open(conn, node, step.as_str(), now).await
}

fn permit_kind(step: Step) -> Option<PermitKind> {
    match step {
        Step::BootLive | Step::BootDisk | Step::Reboot | Step::RebootTest | Step::PowerOff => Some(PermitKind::Power),
        Step::WriteImage => Some(PermitKind::Image),
        Step::Wipe => Some(PermitKind::Wipe),
        Step::Inventory
        | Step::Converge
        | Step::Recheck
        | Step::Gates
        | Step::GatesAfterReboot
        | Step::Admit
        | Step::Drain
        | Step::Remove
        | Step::Adopt
        | Step::Drift => None,
    }
}

fn permit_id(step: Step) -> Option<PermitId> {
    permit_kind(step).map(|_| PermitId::new())
}

fn nonce() -> String {
    hex::encode(rand::random::<[u8; 16]>())
}

/// Mints the permit a step needs, for exactly this node, operation, epoch and these disks.
async fn mint(
    conn: &mut PgConnection,
    node: &EngineNode,
    step: Step,
    job: JobId,
    operation: OperationId,
    permit: Option<PermitId>,
    from: Timestamp,
) -> Result<(), Error> {
    let (Some(id), Some(kind)) = (permit, permit_kind(step)) else { return Ok(()) };
    let facts = match kind {
        PermitKind::Power => None,
        PermitKind::Image | PermitKind::Wipe => db::facts::latest_live(conn, node.id).await?,
    };
    let disk_serials = match (kind, &node.profile, facts) {
        (PermitKind::Power, _, _) => None,
        (PermitKind::Image, Some(profile), Some(facts)) => {
            // The rule held at inspection; should it not any more, the permit names no disk and nothing can be written.
            Some(profile.root_disk(&facts).map(|serial| vec![serial.to_owned()]).unwrap_or_default())
        }
        (PermitKind::Wipe, _, Some(facts)) => {
            let mut serials: Vec<String> = facts.disks.into_iter().filter_map(|disk| disk.serial).collect();
            serials.sort();
            Some(serials)
        }
        (PermitKind::Image | PermitKind::Wipe, _, _) => Some(Vec::new()),
    };
    let lasts = i64::try_from(step.timeout_s()).unwrap_or(i64::MAX / 2) + PERMIT_GRACE_S;
    let permit = NewPermit {
        id,
        kind,
        node: node.id,
        operation,
        claim: node.claim.map(|(claim, _)| claim),
        job,
        epoch: node.epoch,
        disk_serials,
        expires_at: from + SignedDuration::from_secs(lasts),
    };
    db::permits::insert(conn, &permit).await
}

async fn advance(conn: &mut PgConnection, node: &EngineNode, to: &Move, now: Timestamp) -> Result<(), Error> {
    if !table::legal(node.state, to.to) {
        return Err(Error::internal(anyhow::anyhow!("{} may not move from {} to {}", node.name, node.state, to.to)));
    }
    db::lifecycle::advance(conn, node, to, now).await?;
    if let Some(wish) =
        node.wish.filter(|wish| !to.effects.contains(&Effect::WishTaken) && !table::wish_allowed(to.to, *wish))
    {
        db::lifecycle::drop_wish(conn, node.id).await?;
        refused(conn, node, wish, &format!("it came too late, the node is {}", to.to), now).await?;
    }
    if to.effects.contains(&Effect::EndClaim)
        && let Some((claim, _)) = node.claim
    {
        db::lifecycle::end_claim(conn, claim, now).await?;
    }
    if to.effects.contains(&Effect::Adopted) {
        adopted(conn, node, now).await?;
    }
    let because = to.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let summary = format!("{}: {} → {}{because}", node.name, node.state, to.to);
    let detail = json!({ "from": node.state, "to": to.to, "reason": to.reason, "visit": node.visit + 1 });
    let event = NewEvent::node(now, "muster", "node.advanced", node.id, summary).under(node.operation).with(detail);
    db::events::insert(conn, event).await?;
    metrics::counter!("muster_transitions_total", "to" => to.to.as_str()).increment(1);
    end_operation(conn, node, to, now).await
}

/// The claim under which an adopted node serves begins with it.
async fn adopted(conn: &mut PgConnection, node: &EngineNode, now: Timestamp) -> Result<(), Error> {
    let missing = || Error::internal(anyhow::anyhow!("{} is adopted, and nobody asked for it", node.name));
    let claim = db::adoptions::finish(conn, (node.id, &node.name), node.epoch, now).await?.ok_or_else(missing)?;
    // It draws its power already, whether its rack was asked or not.
    let watts = node.profile.as_ref().map_or(0, |profile| profile.power_max_w);
    db::lifecycle::reserve_power(conn, node.id, i32::try_from(watts).unwrap_or(i32::MAX)).await?;
    let summary = format!("{} was adopted as it is and is held by {claim}", node.name);
    let event = NewEvent::node(now, "muster", "claim.created", node.id, summary).under(node.operation);
    db::events::insert(conn, event.with(json!({ "claim": claim }))).await
}

/// An operation is over when its node rests: well when it rests where the operation was going.
async fn end_operation(conn: &mut PgConnection, node: &EngineNode, to: &Move, now: Timestamp) -> Result<(), Error> {
    let Some(operation) = node.operation.filter(|_| to.to.is_resting()) else { return Ok(()) };
    let wished = to.effects.contains(&Effect::WishTaken);
    let (state, message) = match to.to {
        _ if to.effects.contains(&Effect::Stopped) => ("cancelled", to.reason.clone().unwrap_or_default()),
        State::Available | State::InService | State::Retired | State::Discovered => ("succeeded", to.to.to_string()),
        State::Quarantined | State::Maintenance if wished || node.state == State::Draining => {
            ("succeeded", to.to.to_string())
        }
        _ => ("failed", to.reason.clone().unwrap_or_else(|| to.to.to_string())),
    };
    db::operations::end(conn, operation, state, &message, now).await
}
