//! What is to be done next, and the shared way of working through steps.

use jiff::{SignedDuration, Timestamp};

use super::snapshot::{Snapshot, StepStatus, StepView};
use super::state::{Purpose, State, Wish};
use super::steps::Step;
use super::wait::{Wait, WaitReason};
use crate::recovery::{Cause, Ended, Tried};
use crate::wire::failure::{Failure, FailureCode};

/// The lifecycle's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing to do now; why, who must act, and what happens then.
    Wait(Wait),
    /// Move to another state.
    Advance(Move),
    /// Start a step of this stay.
    Start(Step),
    /// Start a step again, as another round, not before a time.
    Retry(Step, Timestamp),
    /// Tell the worker of a step to stop.
    Cancel(Step),
    /// What was asked for is done, without leaving the state.
    Granted(String),
    /// What was asked for cannot be done here.
    Refused(String),
}

/// A move and what goes with it, in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub to: State,
    pub purpose: Option<Purpose>,
    pub failed_phase: Option<State>,
    pub reason: Option<String>,
    pub effects: Vec<Effect>,
    /// What the move does to a recovery.
    pub ladder: Option<Ladder>,
}

/// What a move does to the recovery of its node. One that rests where no recovery led ends it anyhow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ladder {
    /// One begins.
    Begin(Cause),
    /// Rungs were tried: so many are behind it now, and how those of this stay went.
    Climb { tried: usize, went: Vec<Tried> },
    /// It is over, after these.
    End { how: Ended, went: Vec<Tried> },
}

/// Facts about a node that change with a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The wish was acted on.
    WishTaken,
    /// The live image no longer runs, or is not trusted any more.
    ForgetLive,
    /// The installed OS is gone.
    ForgetInstalled,
    JoinCluster,
    LeaveCluster,
    /// The release is complete.
    EndClaim,
    /// The machine is off: its share of the rack's power is free.
    FreePower,
    /// Every disk was wiped and read back.
    Sanitised,
    /// A person stopped what was under way.
    Stopped,
    /// A machine that ran already serves as it is, under a claim of its own.
    Adopted,
}

impl Move {
    /// A plain move.
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

    /// On the way out of a claim that is given up: the release is taken up here, and asks for nothing any more.
    pub fn released(to: State) -> Self {
        Self::to(to).because("released").with(Effect::WishTaken)
    }

    /// With an effect.
    pub fn with(mut self, effect: Effect) -> Self {
        self.effects.push(effect);
        self
    }

    /// With the reason a person reads.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// With what it does to the node's recovery.
    pub fn on(mut self, ladder: Ladder) -> Self {
        self.ladder = Some(ladder);
        self
    }

    /// Because a wish asked for it.
    pub fn as_wished(self, node: &Snapshot) -> Self {
        let reason = node
            .wish_reason
            .clone()
            .or_else(|| node.wish.map(|wish| wish.to_string()));
        Self { reason, ..self }.with(Effect::WishTaken)
    }
}

/// Works through `steps` in order; when all are done, `then` decides.
pub(super) fn follow(
    node: &Snapshot,
    now: Timestamp,
    steps: &[Step],
    then: impl FnOnce() -> Decision,
) -> Decision {
    for &step in steps {
        match node.step(step) {
            None if node.stop => return stopped(node, step),
            None => return start(node, now, step),
            Some(view) => match &view.status {
                StepStatus::Succeeded => {}
                StepStatus::Queued => return wait_for_agent(step),
                StepStatus::Running { waiting_for } => {
                    return wait_for_step(node, step, waiting_for.as_deref());
                }
                StepStatus::Lost => return wait_for_observation(step),
                StepStatus::Cancelled => return stopped(node, step),
                StepStatus::Failed { .. } if node.stop => return stopped(node, step),
                StepStatus::Failed { failure, .. }
                    if failure.retryable && node.protected && step.destroys() =>
                {
                    return protected(step);
                }
                StepStatus::Failed { at, failure }
                    if failure.retryable && view.round < rounds(node, step, failure) =>
                {
                    return Decision::Retry(step, *at + back_off(view.round));
                }
                StepStatus::Failed { failure, .. } => {
                    return failed(node, format!("{}: {}", step.title(), failure.message));
                }
            },
        }
    }
    then()
}

/// Works through steps for what was asked, without leaving the state: what an earlier asking did is done anew, and a failure is told and over.
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

/// The phase ends here, until a person asks for it again. What a drain was for is kept: its retry must not forget it.
fn failed(node: &Snapshot, reason: String) -> Decision {
    Decision::Advance(failure(node, reason))
}

fn failure(node: &Snapshot, reason: String) -> Move {
    Move {
        failed_phase: Some(node.state),
        purpose: node.purpose,
        ..Move::to(State::Failed)
    }
    .because(reason)
}

fn stopped(node: &Snapshot, step: Step) -> Decision {
    Decision::Advance(
        failure(node, format!("{}: stopped on request", step.title())).with(Effect::Stopped),
    )
}

/// Starts a step; one that powers the machine on waits for its share of the rack's power, one that destroys for the node's protection.
fn start(node: &Snapshot, now: Timestamp, step: Step) -> Decision {
    if node.protected && step.destroys() {
        return protected(step);
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
    let rack = power.rack.as_deref().unwrap_or("its rack");
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

fn protected(step: Step) -> Decision {
    Wait::rest(
        WaitReason::Protection,
        "its protection to be cleared",
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

/// Waits for a step that runs.
pub(super) fn wait_for_step(node: &Snapshot, step: Step, waiting_for: Option<&str>) -> Decision {
    let person = node.power_person.clone().filter(|_| step.needs_a_hand());
    Decision::Wait(Wait {
        reason: WaitReason::Step,
        condition: waiting_for.map_or_else(|| step.title().to_owned(), str::to_owned),
        owner: person.unwrap_or_else(|| "agent".into()),
        next_action: format!("go on when this is done: {}", step.title()),
        until: None,
    })
}

/// Neither a success nor a failure: it says what will tell, and that is what happens next.
fn wait_for_observation(step: Step) -> Decision {
    Decision::Wait(Wait {
        reason: WaitReason::Observation,
        condition: format!(
            "{} to tell how this ended: {}",
            step.observation(),
            step.title()
        ),
        owner: "agent".into(),
        next_action: "the site's next agent looks before it acts".into(),
        until: None,
    })
}

/// Rounds that a node on its first way into service is asked that lets nobody in: half an hour and more. A switch that is restarted in the middle of a
/// wave must not leave every node of it to a person. One that serves, or is being recovered, is given up by then.
const SILENT_ROUNDS: i32 = 8;

fn rounds(node: &Snapshot, step: Step, failure: &Failure) -> i32 {
    let on_its_way =
        matches!(node.state, State::Installing | State::Validating) && node.recovery.is_none();
    if on_its_way && failure.code == FailureCode::SshUnreachable {
        SILENT_ROUNDS
    } else {
        step.max_rounds()
    }
}

/// 10 s, 20 s, 40 s … at most 5 minutes.
fn back_off(round: i32) -> SignedDuration {
    let doublings = u32::try_from(round.clamp(1, 6) - 1).unwrap_or(0);
    SignedDuration::from_secs((10_i64 << doublings).min(300))
}

/// The firmware's step, where the stack asks for one and the step that it must come before has not begun: what a stack says may change meanwhile.
pub(super) fn firmware_before(node: &Snapshot, next: Step) -> &'static [Step] {
    let due = node.sets_firmware && node.step(next).is_none();
    if due || node.step(Step::Firmware).is_some() {
        &[Step::Firmware]
    } else {
        &[]
    }
}

/// What every state that holds a claimed node on its way does first: a release or a quarantine stops the running step, takes the node out
/// of the scheduler, and only then moves. `None`: neither was asked for.
pub(super) fn interrupted(node: &Snapshot, now: Timestamp) -> Option<Decision> {
    let wanted = if node.releasing() {
        Move::released(State::Wiping)
    } else if node.wish == Some(Wish::Quarantine) {
        Move::to(State::Quarantined).as_wished(node)
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
        // It ends first; what comes after it is not begun.
        Some(view) => wait_for_step(node, view.step, None),
    })
}

/// What runs for somebody where the node rests is stopped before it goes on.
pub(super) fn stop_first(node: &Snapshot, then: impl FnOnce() -> Decision) -> Decision {
    match node.active() {
        Some(view) if view.step != Step::Remove => Decision::Cancel(view.step),
        _ => then(),
    }
}

/// Takes a node out of the scheduler, if it is in there, and then moves. Tried until it works: the node may go nowhere else before, and a
/// scheduler that is away comes back.
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
