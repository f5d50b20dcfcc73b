//! A failing node: the recovery of its pool, or quarantine with the measured values. Recovery
//! bounds are checked after this decision, and a bound reached leads to a second decision.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Ladder, Move, on_the_spot, rest};
use super::hold;
use super::slot;
use super::snapshot::{Room, SchedulerOut, Snapshot, StepStatus};
use super::state::{Purpose, State};
use super::steps::Step;
use super::wait::{Wait, WaitReason};
use crate::clusters::DrainedBy;
use crate::gates::{GateResult, Judged, Need, Suite, SuiteVerdict, Verdict, judge};
use crate::recovery::{Cause, Ended, Hold, Unfit};
use crate::wire::node::Failure;

/// Seconds between two checks of a recovery waiting for its turn.
const ASK_AGAIN_S: i64 = 60;

/// Starts a recovery requested by a person for a node in service; running jobs end first.
pub(super) fn asked(node: &Snapshot) -> Move {
    let begin = Ladder::Begin(Cause::asked(node.action_reason.as_deref()));
    Move {
        purpose: Some(Purpose::Repair),
        ..Move::to(State::Draining).as_requested(node)
    }
    .on(begin)
}

/// Runs the pool's sweep: all gates on an idle node, or only the gates allowed beside jobs. A
/// failing node is drained, and then recovered or quarantined. A node with failing tools stays in
/// service, because a tool error proves no hardware fault.
pub(super) fn sweep(node: &Snapshot, now: Timestamp) -> Decision {
    let Some(suite) = &node.sweep else {
        return Decision::Refused("the pool names no sweep suite".into());
    };
    if let Some(first) = hold_before_sweep(node, suite, now) {
        return first;
    }
    let ended = on_the_spot(node, now, &[Step::Sweep], || {
        let by = Judged {
            suite,
            profile: node.profile.as_ref(),
            wanted: &[],
            now,
        };
        match judge(&by, &node.swept) {
            SuiteVerdict::Pass => Decision::Granted("swept: no fault found".into()),
            SuiteVerdict::Fail => {
                let what =
                    describe_gates(&node.swept, now, |result| result.verdict == Verdict::Fail);
                taken_out(node, now, Cause::gates(&node.swept, now, what))
            }
            SuiteVerdict::Unknown => Decision::Granted(describe_unclear(&node.swept, now)),
        }
    });
    match (
        ended,
        failure(node, Step::Sweep).and_then(|failure| Cause::step(Step::Sweep.as_str(), failure)),
    ) {
        // Login failed several times: lost contact counts as down.
        (Decision::Refused(_), Some(cause)) if !cause.answers && !node.stop => {
            taken_out(node, now, cause)
        }
        (ended, _) => ended,
    }
}

/// Holds the node before a sweep with gates that need a drained node. The scheduler starts no new
/// jobs and reports running jobs, and a busy node is returned to the scheduler at once. A node that
/// is protected, or already drained for any reason, stays untouched. Busy, protected and drained
/// nodes are swept beside their jobs.
fn hold_before_sweep(node: &Snapshot, suite: &Suite, now: Timestamp) -> Option<Decision> {
    let own = |step| {
        node.step(step)
            .filter(|view| view.current)
            .map(|view| &view.status)
    };
    if own(Step::Sweep).is_some() {
        return None;
    }
    let alone = suite
        .gates
        .iter()
        .any(|gate| gate.needs.contains(&Need::Drained));
    let out = node.scheduler.is_some() || node.pairing.is_some();
    match (own(Step::Hold), node.room) {
        // A protected node is never drained for a sweep: a sweep must not affect its jobs or its
        // place in the scheduler.
        (None, _) if !alone || out || node.stop || node.protected => None,
        (None, Room::Nothing) => None,
        (None, Room::Later) => Some(Decision::Wait(Wait {
            reason: WaitReason::SweepTurn,
            condition:
                "its turn to be swept: the scheduler already holds back other nodes of the pool"
                    .into(),
            owner: "muster".into(),
            next_action: "hold the node for the sweep".into(),
            until: Some(now + jiff::SignedDuration::from_secs(ASK_AGAIN_S)),
        })),
        (None, Room::Enough) if node.step(Step::Hold).is_some() => {
            Some(Decision::Retry(Step::Hold, now))
        }
        (None, Room::Enough) => Some(Decision::Start(Step::Hold)),
        (Some(StepStatus::Queued | StepStatus::Running { .. } | StepStatus::Lost), _)
            if node.stop =>
        {
            Some(Decision::Cancel(Step::Hold))
        }
        (Some(StepStatus::Queued | StepStatus::Running { .. } | StepStatus::Lost), _) => {
            Some(hold::begin(node, now, Step::Hold, now))
        }
        (Some(StepStatus::Succeeded), _) => None,
        (Some(StepStatus::Failed { .. } | StepStatus::Cancelled), _) => hold::given_back(node, now),
    }
}

/// Handles a node drained by its own health check, like a node with a failed gate. Returns `None`
/// if another person or program drained the node, or if the drain was seen only once.
pub(super) fn handle_health_drain(
    node: &Snapshot,
    now: Timestamp,
    out: &SchedulerOut,
) -> Option<Decision> {
    let DrainedBy::HealthCheck(finding) = &out.by else {
        return None;
    };
    if !out.steady {
        return None;
    }
    match taken_out(node, now, Cause::health(&Unfit::parse(finding)?)) {
        Decision::Granted(left) => Some(rest(
            WaitReason::Person,
            &format!("a person: {left}"),
            "operator",
            "none",
        )),
        taken @ (Decision::Wait(_)
        | Decision::Advance(_)
        | Decision::Start(_)
        | Decision::Retry(..)
        | Decision::Cancel(_)
        | Decision::Refused(_)) => Some(taken),
    }
}

/// Describes a sweep with unanswered gates. Gates that need a drained node are skipped beside jobs,
/// as intended.
fn describe_unclear(results: &[GateResult], now: Timestamp) -> String {
    match results
        .iter()
        .any(|result| result.verdict == Verdict::Error && !result.shadow)
    {
        true => format!(
            "swept without a result: {}",
            describe_unanswered(results, now)
        ),
        false => format!(
            "swept: no fault found; not run: {}",
            describe_unanswered(results, now)
        ),
    }
}

/// Takes a failing node out of service. The node stays in service if a bound blames the fleet or
/// pool. A node drained by another person also stays, because the way back into service would lift
/// the other drain. Measured failures are kept. A node waiting for its turn, or for a slot of the
/// disruption budget, is checked again later, and a node over its bound goes to a person instead of
/// a ladder.
pub(super) fn taken_out(node: &Snapshot, now: Timestamp, cause: Cause) -> Decision {
    let left =
        |why: &str| Decision::Granted(format!("{}; the node stays in service: {why}", cause.what));
    let out = Move {
        purpose: Some(Purpose::Repair),
        ..Move::to(State::Draining)
    }
    .with(Effect::ActionTaken);
    let theirs = node
        .scheduler
        .as_ref()
        .and_then(SchedulerOut::others_reason);
    match (&node.hold, theirs) {
        _ if node.protected => left("the node is protected"),
        (_, Some(theirs)) => left(&format!("another party drained the node ({theirs})")),
        (Some(Hold::Fleet(why) | Hold::Pool(why)), None) => left(why),
        (Some(Hold::Later(_)), None) if node.stop => left("the sweep was stopped"),
        (Some(Hold::Later(why)), None) => in_turn(now, why),
        (Some(Hold::Node(_)) | None, None) if node.no_slot.is_some() && node.stop => {
            left("the sweep was stopped")
        }
        (Some(Hold::Node(why)), None) => match &node.no_slot {
            Some(full) => slot::wait(now, full),
            None => Decision::Advance(out.because(format!("{}; {why}", cause.what))),
        },
        (None, None) => match &node.no_slot {
            Some(full) => slot::wait(now, full),
            None => Decision::Advance(out.because(cause.what.clone()).on(Ladder::Begin(cause))),
        },
    }
}

/// Waits for the recoveries of other nodes.
fn in_turn(now: Timestamp, why: &str) -> Decision {
    Decision::Wait(Wait {
        reason: WaitReason::RecoveryTurn,
        condition: format!("its turn to be recovered: {why}"),
        owner: "muster".into(),
        next_action: "begin the recovery".into(),
        until: Some(now + jiff::SignedDuration::from_secs(ASK_AGAIN_S)),
    })
}

/// Handles a failure on the way into service, or back: the next rung, or quarantine. `to` is the
/// move used if no rung is configured.
pub(super) fn fault(node: &Snapshot, now: Timestamp, cause: Cause, to: Move) -> Decision {
    let begins = node
        .policy
        .as_ref()
        .is_some_and(|policy| !policy.rungs.is_empty())
        && !node.protected;
    let what = cause.what.clone();
    match (&node.recovery, &node.hold) {
        (Some(_), Some(hold)) => quarantine(Ended::HeldBack, format!("{what}; {}", hold.why())),
        (Some(recovery), None) if recovery.has_more() => {
            Decision::Advance(Move::to(State::Repairing).because(what))
        }
        (Some(recovery), None) => {
            let tried = recovery
                .rungs
                .iter()
                .map(|rung| rung.title())
                .collect::<Vec<_>>()
                .join(", ");
            quarantine(
                Ended::Spent,
                format!("{what}; tried without success: {tried}"),
            )
        }
        (None, Some(Hold::Later(why))) if begins => in_turn(now, why),
        (None, Some(hold)) if begins => Decision::Advance(
            Move::to(State::Quarantined).because(format!("{what}; {}", hold.why())),
        ),
        (None, None) if begins => Decision::Advance(
            Move::to(State::Repairing)
                .because(what)
                .on(Ladder::Begin(cause)),
        ),
        (None, _) => Decision::Advance(to),
    }
}

/// Ends a recovery that did not help, in quarantine.
fn quarantine(how: Ended, why: String) -> Decision {
    Decision::Advance(Move::to(State::Quarantined).because(why).on(Ladder::End {
        how,
        went: Vec::new(),
    }))
}

/// Returns the failure of a step in this stay.
pub(super) fn failure(node: &Snapshot, step: Step) -> Option<&Failure> {
    match &node.step(step)?.status {
        StepStatus::Failed { failure, .. } => Some(failure),
        StepStatus::Queued
        | StepStatus::Running { .. }
        | StepStatus::Lost
        | StepStatus::Succeeded
        | StepStatus::Cancelled => None,
    }
}

/// Describes the gates without a usable answer, for users.
pub(super) fn describe_unanswered(results: &[GateResult], now: Timestamp) -> String {
    describe_gates(results, now, |result| match result.verdict {
        Verdict::Error => true,
        Verdict::Skipped => result.required,
        Verdict::Pass | Verdict::Fail => false,
    })
}

/// Describes the blocking gates for users, without shadow gates and waived gates.
pub(super) fn describe_gates(
    results: &[GateResult],
    now: Timestamp,
    counts: impl Fn(&GateResult) -> bool,
) -> String {
    let waived = |result: &GateResult| {
        result
            .waived
            .as_ref()
            .is_some_and(|waived| waived.until > now)
    };
    let counted = results
        .iter()
        .filter(|result| !result.shadow && !waived(result) && counts(result));
    let told: Vec<String> = counted
        .map(|result| format!("gate {}: {}", result.gate, result.reason))
        .collect();
    if told.is_empty() {
        "a required gate has no result".into()
    } else {
        told.join("; ")
    }
}
