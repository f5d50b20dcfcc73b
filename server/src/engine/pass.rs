//! A reconcile pass over a node: load and lock the node, decide, store the decision with an event,
//! commit.

use jiff::{SignedDuration, Timestamp};
use muster_core::ids::{NodeId, ObjectId};
use muster_core::lifecycle::decision::{Decision, Effect};
use muster_core::lifecycle::snapshot::StepStatus;
use muster_core::lifecycle::state::{Action, State};
use muster_core::lifecycle::steps::Step;
use muster_core::lifecycle::wait::{Wait, WaitReason};
use sqlx::{PgConnection, PgTransaction};
use tracing::field::{Empty, display};
use tracing::{Instrument as _, Span};

use super::{LOOK_AGAIN, decisions, moves, work};
use crate::app::App;
use crate::db;
use crate::db::lifecycle::EngineNode;
use crate::db::stays::StayStep;
use crate::error::Error;

/// The pause after a failed pass.
const AFTER_ERROR: SignedDuration = SignedDuration::from_secs(10);

/// Most moves in one pass. A node begins the work of a new state in the same pass. Every path of
/// the state table without work has fewer moves.
const MOVES: usize = 8;

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// A job waits for an agent.
    QueuedJob,
    Other,
}

/// Resources that a pass has freed for other nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Freed {
    /// Power of the node's rack.
    power: bool,
    /// A slot of the disruption budget.
    slot: bool,
}

impl Freed {
    fn add(&mut self, other: Self) {
        self.power |= other.power;
        self.slot |= other.slot;
    }
}

/// The result of one decision.
enum Done {
    Moved(Freed),
    QueuedJob,
    Waits,
}

/// Reconciles one due node. Returns `None` when no node is due.
pub(super) async fn run_next(app: &App) -> Result<Option<Pass>, Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let Some(node) = db::lifecycle::lock_due(&mut tx, now).await? else {
        return Ok(None);
    };
    let pass = run_pass(app, tx, node, now).instrument(span_of(node));
    pass.await.map(Some)
}

/// Returns the span of a pass. The pass adds the node's name and operation after the read. A span at
/// the level `error` is kept by every filter, so a warning always carries the fields.
fn span_of(node: NodeId) -> Span {
    tracing::error_span!("pass", node_id = %node, node = Empty, operation = Empty)
}

/// Reconciles a locked node, and commits or postpones the node.
async fn run_pass(
    app: &App,
    mut tx: PgTransaction<'_>,
    node: NodeId,
    now: Timestamp,
) -> Result<Pass, Error> {
    match reconcile(&mut tx, node, now).await {
        Ok((result, rack, freed)) => {
            tx.commit().await?;
            wake_others(app, rack, freed, node, now).await?;
            Ok(result)
        }
        Err(error @ Error::Unavailable(_)) => Err(error),
        // The database ended this transaction in favour of another. The node is still due and gets
        // another pass.
        Err(error @ Error::Contended(_)) => {
            tx.rollback().await?;
            tracing::info!(error = ?error, "a pass was rolled back by the database and is repeated");
            Ok(Pass::Other)
        }
        // The node due for the longest time is read first. A failing node is therefore postponed,
        // or all other nodes would wait.
        Err(error) => {
            tx.rollback().await?;
            tracing::error!(error = ?error, "a pass failed");
            db::lifecycle::postpone(
                &mut *app.pool.acquire().await?,
                node,
                now + AFTER_ERROR,
                now,
            )
            .await?;
            Ok(Pass::Other)
        }
    }
}

/// Reconciles the node inside the caller's transaction under the node's row lock, so the reaction
/// commits together with the cause.
///
/// # Errors
///
/// When the pass fails. The caller must then roll the transaction back.
pub async fn reconcile_now(
    conn: &mut PgConnection,
    node: NodeId,
    now: Timestamp,
) -> Result<Reconciled, Error> {
    let pass = reconcile(conn, node, now).instrument(span_of(node));
    let (result, rack, freed) = pass.await?;
    Ok(Reconciled {
        node,
        result,
        rack,
        freed,
        now,
    })
}

/// A pass with the readers to wake after the commit.
#[must_use]
pub struct Reconciled {
    node: NodeId,
    result: Pass,
    rack: Option<ObjectId>,
    freed: Freed,
    now: Timestamp,
}

impl Reconciled {
    /// Wakes the agents, readers and nodes waiting for the pass.
    ///
    /// # Errors
    ///
    /// When the database fails.
    pub async fn wake(self, app: &App) -> Result<(), Error> {
        if self.result == Pass::QueuedJob {
            app.wake_agents.notify_waiters();
        }
        app.wake_readers.send_modify(|revision| *revision += 1);
        wake_others(app, self.rack, self.freed, self.node, self.now).await
    }
}

/// Wakes nodes waiting for the rack's power or for a slot of the disruption budget, in a separate
/// transaction. The rack's lock blocks passes of the rack's nodes, so the transaction must hold no
/// node. After a failure the nodes check again within [`LOOK_AGAIN`].
async fn wake_others(
    app: &App,
    rack: Option<ObjectId>,
    freed: Freed,
    node: NodeId,
    now: Timestamp,
) -> Result<(), Error> {
    if !(freed.power || freed.slot) {
        return Ok(());
    }
    let mut tx = app.pool.begin().await?;
    if let Some(rack) = rack.filter(|_| freed.power) {
        db::power::wake_rack(&mut tx, rack, node, now).await?;
    }
    if freed.slot {
        db::disruption::wake_waiting(&mut tx, node, now).await?;
    }
    tx.commit().await?;
    app.wake_engine.notify_one();
    Ok(())
}

/// Decides and stores the decision until the node waits. Returns the node's rack, and the freed
/// resources.
async fn reconcile(
    conn: &mut PgConnection,
    id: NodeId,
    now: Timestamp,
) -> Result<(Pass, Option<ObjectId>, Freed), Error> {
    let (mut rack, mut freed) = (None, Freed::default());
    for round in 0..MOVES {
        let node = db::lifecycle::get(conn, id).await?;
        if round == 0 {
            label_span(&node);
        }
        rack = node.rack;
        let stay = db::stays::list(conn, node.id, node.visit, node.operation).await?;
        let decision = decisions::decide_node(conn, &node, &stay, now).await?;
        match persist(conn, &node, &stay, decision, now).await? {
            Done::Moved(more) => freed.add(more),
            Done::QueuedJob => return Ok((Pass::QueuedJob, rack, freed)),
            Done::Waits => return Ok((Pass::Other, rack, freed)),
        }
    }
    // The node is still due and goes on in the next pass.
    Ok((Pass::Other, rack, freed))
}

/// Adds the node's name and operation to the log lines of the pass.
fn label_span(node: &EngineNode) {
    let span = Span::current();
    span.record("node", node.name.as_str());
    if let Some(operation) = node.operation {
        span.record("operation", display(operation));
    }
}

async fn persist(
    conn: &mut PgConnection,
    node: &EngineNode,
    stay: &[StayStep],
    decision: Decision,
    now: Timestamp,
) -> Result<Done, Error> {
    match decision {
        Decision::Wait(wait) => persist_wait(conn, node, stay, &wait, now).await,
        Decision::Start(step) => {
            work::start(conn, node, step, now).await?;
            Ok(Done::QueuedJob)
        }
        Decision::Retry(step, not_before) => {
            let job = find_step(stay, step)
                .ok_or_else(|| Error::internal(anyhow::anyhow!("{step} has no job to retry")))?;
            work::retry(conn, node, job, step, not_before, now).await?;
            Ok(Done::QueuedJob)
        }
        Decision::Cancel(step) => persist_cancel(conn, node, stay, step, now).await,
        Decision::Advance(to) => {
            moves::advance(conn, node, &to, now).await?;
            Ok(Done::Moved(Freed {
                power: to.effects.contains(&Effect::FreePower),
                slot: to.to == State::InService,
            }))
        }
        Decision::Granted(what) => {
            if node.action.is_none() {
                db::pairs::ends::come_back(conn, node.id, None, now).await?;
            }
            db::sweeps::give_back(conn, node.id).await?;
            moves::grant(conn, node, &what, now).await?;
            Ok(Done::Moved(Freed {
                power: may_have_freed(node.action),
                slot: node.state == State::InService,
            }))
        }
        Decision::Refused(why) => {
            db::sweeps::give_back(conn, node.id).await?;
            db::lifecycle::drop_action(conn, node.id).await?;
            if let Some(action) = node.action {
                moves::refuse(conn, node, action, &why, now).await?;
            }
            db::lifecycle::make_due(conn, node.id, now).await?;
            Ok(Done::Moved(Freed {
                power: may_have_freed(node.action),
                slot: node.state == State::InService,
            }))
        }
    }
}

/// Stores the node's wait. A request without a begun step is refused.
async fn persist_wait(
    conn: &mut PgConnection,
    node: &EngineNode,
    stay: &[StayStep],
    wait: &Wait,
    now: Timestamp,
) -> Result<Done, Error> {
    let begun = stay.iter().any(has_begun);
    if !begun {
        moves::refuse_action(conn, node, wait, now).await?;
    }
    let looks_again = !node.state.is_steady() || (node.action.is_some() && begun);
    let due = wait.until.or(looks_again.then(|| now + LOOK_AGAIN));
    db::lifecycle::set_waiting(conn, node.id, wait, due, now).await?;
    Ok(Done::Waits)
}

/// Returns whether a step of the stay belongs to the current operation or is still open.
fn has_begun(step: &StayStep) -> bool {
    let open = matches!(
        step.view.status,
        StepStatus::Queued | StepStatus::Running { .. } | StepStatus::Lost
    );
    open || step.view.current
}

/// Cancels the job of a step. A queued job is cancelled immediately. A running job is cancelled at
/// the next renewal of the lease, so the node is due again soon.
async fn persist_cancel(
    conn: &mut PgConnection,
    node: &EngineNode,
    stay: &[StayStep],
    step: Step,
    now: Timestamp,
) -> Result<Done, Error> {
    if let Some(job) = find_step(stay, step) {
        db::jobs::cancel(conn, job.id, now).await?;
    }
    let wait = Wait {
        reason: WaitReason::StepStops,
        condition: format!("the running step to stop: {}", step.title()),
        owner: "agent".into(),
        next_action: "continue after the stop".into(),
        until: None,
    };
    let soon = now + SignedDuration::from_secs(1);
    db::lifecycle::set_waiting(conn, node.id, &wait, Some(soon), now).await?;
    Ok(Done::Waits)
}

/// Returns whether a granted or refused request may have switched a resting node off.
fn may_have_freed(action: Option<Action>) -> bool {
    matches!(action, Some(Action::PowerOff | Action::RunGates))
}

fn find_step(stay: &[StayStep], step: Step) -> Option<&StayStep> {
    stay.iter().find(|known| known.view.step == step)
}
