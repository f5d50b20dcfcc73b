//! The next action for a node, and the shared functions for working through steps.

use jiff::{SignedDuration, Timestamp};

use super::snapshot::{Snapshot, StepStatus, StepView};
use super::state::{Action, Purpose, State};
use super::steps::Step;
use super::wait::{Wait, WaitReason};
use crate::recovery::{Cause, Ended, Tried};
use crate::wire::failure::{Failure, FailureCode};

/// The result of a lifecycle decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// No action now; the wait names the reason, the owner and the next action.
    Wait(Wait),
    /// Move to another state.
    Advance(Move),
    /// Start a step of this stay in the state.
    Start(Step),
    /// Start the step again as another round, at the given time or later.
    Retry(Step, Timestamp),
    /// Ask the step's worker to stop.
    Cancel(Step),
    /// The request is done, and the state does not change.
    Granted(String),
    /// The request is impossible here; the text gives the reason.
    Refused(String),
}

/// A move and its effects, written in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub to: State,
    pub purpose: Option<Purpose>,
    pub failed_phase: Option<State>,
    pub reason: Option<String>,
    pub effects: Vec<Effect>,
    /// The effect of the move on a recovery.
    pub ladder: Option<Ladder>,
}

/// The effect of a move on the node's recovery. A recovery also ends when the node reaches a
/// resting state by another path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ladder {
    /// A recovery begins.
    Begin(Cause),
    /// Rungs were tried: `tried` counts all rungs so far, and `went` holds the outcomes of this
    /// stay.
    Climb { tried: usize, went: Vec<Tried> },
    /// The recovery ended, after the rungs in `went`.
    End { how: Ended, went: Vec<Tried> },
}

/// Facts about a node changed by a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The requested action was taken.
    ActionTaken,
    /// The live image no longer runs, or is no longer trusted.
    ForgetLive,
    /// The installed OS is gone.
    ForgetInstalled,
    JoinCluster,
    LeaveCluster,
    /// The release is complete.
    EndClaim,
    /// The machine is off, and its reserved share of the rack's power is free.
    FreePower,
    /// Every disk was wiped and verified by reading back.
    Sanitised,
    /// A person stopped the work under way.
    Stopped,
    /// An existing machine was adopted: the node serves with its present system, under its own
    /// claim.
    Adopted,
}

impl Move {
    /// Builds a plain move.
    pub fn to(to: State) -> Self {
        Self {
            to,
            purpose: None,
            failed_phase: None,
            reason: None,
            effects: Vec::new(),
            ladder: None,
        }
    }

    /// Builds a move that ends a claim. The release request is taken here and has no further
    /// effect.
    pub fn released(to: State) -> Self {
        Self::to(to).because("released").with(Effect::ActionTaken)
    }

    /// Adds an effect.
    pub fn with(mut self, effect: Effect) -> Self {
        self.effects.push(effect);
        self
    }

    /// Adds the reason shown to users.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Adds the effect on the node's recovery.
    pub fn on(mut self, ladder: Ladder) -> Self {
        self.ladder = Some(ladder);
        self
    }

    /// Uses the requested action as the reason, and marks the request as taken.
    pub fn as_requested(self, node: &Snapshot) -> Self {
        let reason = node
            .action_reason
            .clone()
            .or_else(|| node.action.map(|action| action.to_string()));
        Self { reason, ..self }.with(Effect::ActionTaken)
    }
}

/// A wait that ends with a change, at no known time.
pub(super) fn rest(
    reason: WaitReason,
    condition: &str,
    owner: &str,
    next_action: &str,
) -> Decision {
    Decision::Wait(Wait {
        reason,
        condition: condition.into(),
        owner: owner.into(),
        next_action: next_action.into(),
        until: None,
    })
}

/// Works through `steps` in order. After all steps succeeded, `then` decides.
pub(super) fn follow(
    node: &Snapshot,
    now: Timestamp,
    steps: &[Step],
    then: impl FnOnce() -> Decision,
) -> Decision {
    for &step in steps {
        match node.step(step) {
            None if node.stop => return fail_stopped(node, step),
            None => return start(node, now, step),
            Some(view) => match &view.status {
                StepStatus::Succeeded => {}
                StepStatus::Queued => return wait_for_agent(step),
                StepStatus::Running { waiting_for } => {
                    return wait_for_step(node, step, waiting_for.as_deref());
                }
                StepStatus::Lost => return wait_for_observation(step),
                StepStatus::Cancelled => return fail_stopped(node, step),
                StepStatus::Failed { .. } if node.stop => return fail_stopped(node, step),
                StepStatus::Failed { failure, .. }
                    if failure.retryable && node.protected && step.destroys() =>
                {
                    return wait_until_unprotected(step);
                }
                StepStatus::Failed { at, failure }
                    if failure.retryable
                        && view.round < count_allowed_rounds(node, step, failure) =>
                {
                    return Decision::Retry(step, *at + back_off(view.round));
                }
                StepStatus::Failed { failure, .. } => {
                    return fail_phase(node, format!("{}: {}", step.title(), failure.message));
                }
            },
        }
    }
    then()
}

/// Works through steps of a request without leaving the state. Steps done for an earlier request
/// are repeated. A failure is reported and ends the request.
pub(super) fn on_the_spot(
    node: &Snapshot,
    now: Timestamp,
    steps: &[Step],
    then: impl FnOnce() -> Decision,
) -> Decision {
    let own = node
        .steps
        .iter()
        .filter(|view| view.current)
        .cloned()
        .collect();
    match follow(
        &Snapshot {
            steps: own,
            ..node.clone()
        },
        now,
        steps,
        then,
    ) {
        Decision::Start(step) if node.step(step).is_some() => Decision::Retry(step, now),
        Decision::Advance(Move {
            to: State::Failed,
            reason,
            ..
        }) => Decision::Refused(reason.unwrap_or_default()),
        other @ (Decision::Wait(_)
        | Decision::Advance(_)
        | Decision::Start(_)
        | Decision::Retry(..)
        | Decision::Cancel(_)
        | Decision::Granted(_)
        | Decision::Refused(_)) => other,
    }
}

/// Ends the phase until a person requests a retry. The purpose of a drain is kept, because the
/// retry needs the purpose.
fn fail_phase(node: &Snapshot, reason: String) -> Decision {
    Decision::Advance(move_to_failed(node, reason))
}

fn move_to_failed(node: &Snapshot, reason: String) -> Move {
    Move {
        failed_phase: Some(node.state),
        purpose: node.purpose,
        ..Move::to(State::Failed)
    }
    .because(reason)
}

fn fail_stopped(node: &Snapshot, step: Step) -> Decision {
    Decision::Advance(
        move_to_failed(node, format!("{}: stopped on request", step.title())).with(Effect::Stopped),
    )
}

/// Starts a step. A step that powers the machine on waits for a share of the rack's power. A
/// destructive step waits until the node's protection is removed.
fn start(node: &Snapshot, now: Timestamp, step: Step) -> Decision {
    if node.protected && step.destroys() {
        return wait_until_unprotected(step);
    }
    let power = &node.power;
    let needs = node
        .profile
        .as_ref()
        .map_or(0, |profile| profile.power_max_w);
    let fits = power
        .budget_w
        .is_none_or(|budget| power.committed_w.saturating_add(needs) <= budget);
    if !step.powers_on() || power.reserved || fits {
        return Decision::Start(step);
    }
    let rack = power.rack.as_deref().unwrap_or("the rack");
    let budget = power.budget_w.unwrap_or_default();
    Decision::Wait(Wait {
        reason: WaitReason::RackPower,
        condition: format!(
            "{rack}'s power budget: {} of {budget} W are committed, this node may draw {needs} W",
            power.committed_w
        ),
        owner: "muster".into(),
        next_action: format!(
            "{} as soon as another node of the rack is off",
            step.title()
        ),
        until: Some(now + SignedDuration::from_secs(30)),
    })
}

fn wait_until_unprotected(step: Step) -> Decision {
    rest(
        WaitReason::Protection,
        "the node's protection to be removed",
        "operator",
        step.title(),
    )
}

fn wait_for_agent(step: Step) -> Decision {
    Decision::Wait(Wait {
        reason: WaitReason::Agent,
        condition: format!("the site's agent to take the job: {}", step.title()),
        owner: "agent".into(),
        next_action: step.title().into(),
        until: None,
    })
}

/// Waits for a running step.
pub(super) fn wait_for_step(node: &Snapshot, step: Step, waiting_for: Option<&str>) -> Decision {
    let person = node.power_person.clone().filter(|_| step.needs_a_hand());
    Decision::Wait(Wait {
        reason: WaitReason::Step,
        condition: waiting_for.map_or_else(|| step.title().to_owned(), str::to_owned),
        owner: person.unwrap_or_else(|| "agent".into()),
        next_action: format!("continue after this step: {}", step.title()),
        until: None,
    })
}

/// Waits for the observation that decides between success and failure of a lost step. The
/// observation is the next action.
fn wait_for_observation(step: Step) -> Decision {
    Decision::Wait(Wait {
        reason: WaitReason::Observation,
        condition: format!(
            "{} to show how this step ended: {}",
            step.observation(),
            step.title()
        ),
        owner: "agent".into(),
        next_action: "the site's next agent checks before acting".into(),
        until: None,
    })
}

/// Rounds for a node with failing SSH on its first way into service: more than half an hour in
/// total. A switch restart during a rollout must not leave every node of the rollout to a person.
/// Other nodes use the step's own maximum, so a recovery continues earlier.
const SILENT_ROUNDS: i32 = 8;

fn count_allowed_rounds(node: &Snapshot, step: Step, failure: &Failure) -> i32 {
    let on_its_way =
        matches!(node.state, State::Installing | State::Validating) && node.recovery.is_none();
    if on_its_way && failure.code == FailureCode::SshUnreachable {
        SILENT_ROUNDS
    } else {
        step.max_rounds()
    }
}

/// Returns the delay before a round: 10 s, 20 s, 40 s … at most 5 minutes.
fn back_off(round: i32) -> SignedDuration {
    let doublings = u32::try_from(round.clamp(1, 6) - 1).unwrap_or(0);
    SignedDuration::from_secs((10_i64 << doublings).min(300))
}

/// Returns the firmware step if the stack asks for firmware before `next` has begun, or if the step
/// exists in this stay. A stack changed after `next` began has no effect until the next stay.
pub(super) fn firmware_before(node: &Snapshot, next: Step) -> &'static [Step] {
    let due = node.sets_firmware && node.step(next).is_none();
    if due || node.step(Step::Firmware).is_some() {
        &[Step::Firmware]
    } else {
        &[]
    }
}

/// Handles a release or quarantine in every state of a claimed node on its way. The running step is
/// stopped, the node leaves the scheduler, and then moves. Returns `None` without such a request.
pub(super) fn interrupted(node: &Snapshot, now: Timestamp) -> Option<Decision> {
    let wanted = if node.releasing() {
        Move::released(State::Wiping)
    } else if node.action == Some(Action::Quarantine) {
        Move::to(State::Quarantined).as_requested(node)
    } else {
        return None;
    };
    Some(match node.active() {
        Some(StepView {
            step: Step::Remove, ..
        })
        | None => leave_cluster(node, now, wanted),
        Some(view) if view.step.may_be_stopped() || view.status == StepStatus::Queued => {
            Decision::Cancel(view.step)
        }
        // The running step ends first; no further step begins.
        Some(view) => wait_for_step(node, view.step, None),
    })
}

/// Cancels the running step of an earlier request before the node moves on.
pub(super) fn stop_first(node: &Snapshot, then: impl FnOnce() -> Decision) -> Decision {
    match node.active() {
        Some(view) if view.step != Step::Remove => Decision::Cancel(view.step),
        _ => then(),
    }
}

/// Removes a node from the scheduler if listed, and then moves. The removal is retried without
/// limit: the node must not move earlier, and an unreachable scheduler usually returns.
pub(super) fn leave_cluster(node: &Snapshot, now: Timestamp, wanted: Move) -> Decision {
    if !node.in_cluster {
        return Decision::Advance(wanted);
    }
    match node.step(Step::Remove) {
        Some(StepView {
            status: StepStatus::Cancelled,
            ..
        }) => Decision::Retry(Step::Remove, now),
        Some(StepView {
            status: StepStatus::Failed { at, .. },
            round,
            ..
        }) => Decision::Retry(Step::Remove, *at + back_off(*round)),
        _ => follow(&node.unstoppable(), now, &[Step::Remove], || {
            Decision::Advance(wanted.with(Effect::LeaveCluster))
        }),
    }
}
