//! One node's turn: load it locked, decide, persist the answer and its event, commit.

use jiff::{SignedDuration, Timestamp};
use muster_core::facts::Facts;
use muster_core::gates::GateResult;
use muster_core::ids::{NodeId, ObjectId};
use muster_core::lifecycle::decide;
use muster_core::lifecycle::decision::{Decision, Effect, Wait};
use muster_core::lifecycle::snapshot::{PowerShare, Room, Snapshot, StepStatus};
use muster_core::lifecycle::state::{State, Wish};
use muster_core::lifecycle::steps::Step;
use muster_core::wire::result::JobResult;
use sqlx::PgConnection;

use super::{LOOK_AGAIN, moves, pairs, recoveries, waivers, work};
use crate::app::App;
use crate::db;
use crate::db::jobs::StayStep;
use crate::db::lifecycle::EngineNode;
use crate::error::Error;

/// A node whose turn went wrong gets another one after this time.
const AFTER_ERROR: SignedDuration = SignedDuration::from_secs(10);

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
    let Some(node) = db::lifecycle::lock_due(&mut tx, now).await? else {
        return Ok(None);
    };
    match give(&mut tx, node, now).await {
        Ok((turn, freed)) => {
            tx.commit().await?;
            wake_rack(app, freed, node, now).await?;
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
            db::lifecycle::postpone(
                &mut *app.pool.acquire().await?,
                node,
                now + AFTER_ERROR,
                now,
            )
            .await?;
            Ok(Some(Turn::Other))
        }
    }
}

/// Gives a node its turn in the transaction that changed it, which holds it: the answer to what just came is committed with it.
///
/// # Errors
/// When the turn goes wrong; the transaction must then not be committed.
pub async fn take_at_once(
    conn: &mut PgConnection,
    node: NodeId,
    now: Timestamp,
) -> Result<Taken, Error> {
    let (turn, freed) = give(conn, node, now).await?;
    Ok(Taken {
        node,
        turn,
        freed,
        now,
    })
}

/// A turn that is to be told once it is committed.
#[must_use]
pub struct Taken {
    node: NodeId,
    turn: Turn,
    freed: Option<ObjectId>,
    now: Timestamp,
}

impl Taken {
    /// Wakes those who may go on now.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn tell(self, app: &App) -> Result<(), Error> {
        if self.turn == Turn::QueuedJob {
            app.wake_agents.notify_waiters();
        }
        app.wake_readers.send_modify(|revision| *revision += 1);
        wake_rack(app, self.freed, self.node, self.now).await
    }
}

/// Wakes those who wait for power. Apart from the turn: it holds the rack, for which the turns of its nodes wait, and must hold no node meanwhile.
/// Should it not come to this, they look again by themselves.
async fn wake_rack(
    app: &App,
    freed: Option<ObjectId>,
    node: NodeId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(rack) = freed else { return Ok(()) };
    let mut tx = app.pool.begin().await?;
    db::power::wake_rack(&mut tx, rack, node, now).await?;
    tx.commit().await?;
    app.wake_engine.notify_one();
    Ok(())
}

/// One decision after the other, until there is something to wait for. The rack whose power was freed on the way.
async fn give(
    conn: &mut PgConnection,
    id: NodeId,
    now: Timestamp,
) -> Result<(Turn, Option<ObjectId>), Error> {
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
    let mut snapshot = snapshot(conn, node, stay, now).await?;
    let mut decision = decide(&snapshot, now);
    if let Decision::Start(step) | Decision::Retry(step, _) = decision
        && step.powers_on()
        && node.power_reserved_w == 0
    {
        // Decided again with the rack held: two nodes cannot share out the same watts.
        snapshot.power = db::power::share(conn, node).await?;
        decision = decide(&snapshot, now);
    }
    if let Decision::Start(Step::Hold) | Decision::Retry(Step::Hold, _) = decision
        && let Some((claim, _)) = node.claim.filter(|_| node.wish == Some(Wish::Sweep))
    {
        // Decided again with the pool's other nodes counted: each spares so many and no more.
        snapshot.room = db::sweeps::room(conn, claim).await?;
        decision = decide(&snapshot, now);
    }
    if let Some(hold) = recoveries::hold(conn, node, &decision, now).await? {
        snapshot.hold = Some(hold.clone());
        let wanted = std::mem::replace(&mut decision, decide(&snapshot, now));
        recoveries::leave(conn, node, (&wanted, &hold, &decision), now).await?;
    }
    let next = match &decision {
        Decision::Start(step) | Decision::Retry(step, _) => Some(*step),
        // Queued, and no agent is given it.
        Decision::Wait(_) => snapshot
            .active()
            .filter(|view| view.status == StepStatus::Queued)
            .map(|view| view.step),
        Decision::Advance(_)
        | Decision::Cancel(_)
        | Decision::Granted(_)
        | Decision::Refused(_) => None,
    };
    if let Some(step) = next.filter(|step| work::permit_kind(*step).is_some())
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

async fn snapshot(
    conn: &mut PgConnection,
    node: &EngineNode,
    stay: &[StayStep],
    now: Timestamp,
) -> Result<Snapshot, Error> {
    let result = |wanted: Step| {
        stay.iter()
            .find(|step| step.view.step == wanted)
            .and_then(|step| step.result.as_ref())
    };
    let gates = |wanted| match result(wanted) {
        Some(JobResult::Gated { results, .. }) => results.clone(),
        _ => Vec::new(),
    };
    let converged = result(Step::Recheck)
        .or_else(|| result(Step::Converge))
        .and_then(|result| match result {
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
        held: node.held,
        unsanitised: node.unsanitised,
        until: node.maintenance_until,
        stop: node.stop,
        disputed_parts: match node.state {
            State::Inspecting | State::Quarantined => {
                db::components::list_disputed(conn, node.id).await?
            }
            _ => Vec::new(),
        },
        in_cluster: node.in_cluster,
        live: node.live,
        installed: node.installed,
        off: node.off,
        power_person: node.power_person.clone(),
        sets_firmware: asks_for_firmware(node) && db::firmware::is_wanted(conn, node.id).await?,
        has_network_profile: match node.state {
            State::Imaging => db::networks::find_profile(conn, node.id).await?.is_some(),
            _ => false,
        },
        // Asked for only when it decides.
        power: PowerShare {
            reserved: node.power_reserved_w > 0,
            ..PowerShare::default()
        },
        steps: stay.iter().map(|step| step.view.clone()).collect(),
        profile: node.profile.clone(),
        facts,
        converged,
        suite: node.suite.clone(),
        gates: still_waived(conn, node, gates(Step::Gates), now).await?,
        gates_after_reboot: still_waived(conn, node, gates(Step::GatesAfterReboot), now).await?,
        scheduler: node.scheduler.clone(),
        sweep: node.sweep.clone(),
        swept: gates(Step::Sweep),
        recovery: node.recovery.as_ref().map(|(_, recovery)| recovery.clone()),
        policy: node.policy.clone(),
        // Asked for only when it decides.
        hold: None,
        held_back: node.held_back,
        // Asked for only when it decides.
        room: Room::Enough,
        pairing: match node.state {
            State::InService => pairs::wanted(conn, node, now).await?,
            _ => None,
        },
    })
}

/// What gates found on the way into service, where a reboot lies between a run and what it is for.
async fn still_waived(
    conn: &mut PgConnection,
    node: &EngineNode,
    mut results: Vec<GateResult>,
    now: Timestamp,
) -> Result<Vec<GateResult>, Error> {
    if node.state == State::Validating {
        waivers::stamp_again(conn, node.id, &mut results, now).await?;
    }
    Ok(results)
}

/// Whether it decides something here what the stack wants of firmware and BIOS.
fn asks_for_firmware(node: &EngineNode) -> bool {
    let compares = node.state == State::InService && node.wish == Some(Wish::CheckDrift);
    compares || matches!(node.state, State::Imaging | State::Installing)
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
                matches!(
                    step.view.status,
                    StepStatus::Queued | StepStatus::Running { .. } | StepStatus::Lost
                )
            };
            // One that has begun waits for what is in its way.
            let begun = |step: &StayStep| open(step) || step.view.current;
            if !stay.iter().any(begun) {
                moves::refuse_wish(conn, node, &wait, now).await?;
            }
            let begun = node.wish.is_some() && stay.iter().any(begun);
            let again = (!node.state.is_steady() || begun).then(|| now + LOOK_AGAIN);
            let due = wait.until.or(again);
            db::lifecycle::set_waiting(conn, node.id, &wait, due, now).await?;
            Ok(Done::Waits)
        }
        Decision::Start(step) => work::start(conn, node, step, now)
            .await
            .map(|()| Done::QueuedJob),
        Decision::Retry(step, not_before) => {
            let job = find(stay, step)
                .ok_or_else(|| Error::internal(anyhow::anyhow!("{step} has no job to retry")))?;
            work::retry(conn, node, job, step, (now, not_before))
                .await
                .map(|()| Done::QueuedJob)
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
            moves::advance(conn, node, &to, now).await?;
            Ok(Done::Moved {
                freed_power: to.effects.contains(&Effect::FreePower),
            })
        }
        Decision::Granted(what) => {
            if node.wish.is_none() {
                db::pairs::ends::come_back(conn, node.id, None, now).await?;
            }
            db::sweeps::give_back(conn, node.id).await?;
            moves::granted(conn, node, &what, now).await?;
            Ok(Done::Moved {
                freed_power: may_have_freed(node.wish),
            })
        }
        Decision::Refused(why) => {
            db::sweeps::give_back(conn, node.id).await?;
            db::lifecycle::drop_wish(conn, node.id).await?;
            if let Some(wish) = node.wish {
                moves::refused(conn, node, wish, &why, now).await?;
            }
            db::lifecycle::make_due(conn, node.id, now).await?;
            Ok(Done::Moved {
                freed_power: may_have_freed(node.wish),
            })
        }
    }
}

/// Whether a node that rests may be off since what was asked of it.
fn may_have_freed(wish: Option<Wish>) -> bool {
    matches!(wish, Some(Wish::PowerOff | Wish::RunGates))
}

fn find(stay: &[StayStep], step: Step) -> Option<&StayStep> {
    stay.iter().find(|known| known.view.step == step)
}
