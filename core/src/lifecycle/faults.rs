//! A node that fails: what its pool asks to be tried, or quarantine with what was measured. The bounds are looked at once this has been decided, and
//! may have it decided again.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Ladder, Move, on_the_spot};
use super::pairing;
use super::snapshot::{Room, SchedulerOut, Snapshot, StepStatus};
use super::state::{Purpose, State};
use super::steps::Step;
use super::wait::{Wait, WaitReason};
use crate::clusters::OUR_REASON;
use crate::gates::{GateResult, Judged, Need, Suite, SuiteVerdict, Verdict, judge};
use crate::recovery::{Cause, Ended, Hold, Unfit};
use crate::wire::node::Failure;

/// Seconds until it is asked again whether a recovery may begin that others are before.
const ASK_AGAIN_S: i64 = 60;

/// A person asks for a recovery of a node in service: its jobs end first.
pub(super) fn asked(node: &Snapshot) -> Move {
    let begin = Ladder::Begin(Cause::asked(node.wish_reason.as_deref()));
    Move {
        purpose: Some(Purpose::Repair),
        ..Move::to(State::Draining).as_wished(node)
    }
    .on(begin)
}

/// Runs the pool's sweep: all of it on a node that is idle, and beside its jobs what needs nobody away. A node that fails is drained, and then recovered
/// or quarantined; one whose tools fail serves on.
pub(super) fn sweep(node: &Snapshot, now: Timestamp) -> Decision {
    let Some(suite) = &node.sweep else {
        return Decision::Refused("its pool names no sweep".into());
    };
    if let Some(first) = hold(node, suite, now) {
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
            SuiteVerdict::Pass => Decision::Granted("swept: nothing found".into()),
            SuiteVerdict::Fail => {
                let what = summary(&node.swept, now, |result| result.verdict == Verdict::Fail);
                taken_out(node, now, Cause::gates(&node.swept, now, what))
            }
            SuiteVerdict::Unknown => Decision::Granted(unclear(&node.swept, now)),
        }
    });
    match (
        ended,
        failure(node, Step::Sweep).and_then(|failure| Cause::step(Step::Sweep.as_str(), failure)),
    ) {
        // Nobody could log in, several times: contact that is lost counts as down.
        (Decision::Refused(_), Some(cause)) if !cause.answers && !node.stop => {
            taken_out(node, now, cause)
        }
        (ended, _) => ended,
    }
}

/// What comes before a sweep with gates that need nobody's job on the node: its scheduler is asked to start none, and says whether one runs. One that is
/// busy is given back at once; one that is out already, for whatever reason, or protected, is left as it is. All of these are swept as nodes with jobs.
fn hold(node: &Snapshot, suite: &Suite, now: Timestamp) -> Option<Decision> {
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
        // Nothing is drained of what is protected: whose jobs it runs, and who lists it, is not for a sweep to change.
        (None, _) if !alone || out || node.stop || node.protected => None,
        (None, Room::Nothing) => None,
        (None, Room::Later) => Some(Decision::Wait(Wait {
            reason: WaitReason::SweepTurn,
            condition: "its turn to be swept: its scheduler holds back others of its pool".into(),
            owner: "muster".into(),
            next_action: "hold it for its sweep".into(),
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
            Some(pairing::begin(node, now, Step::Hold, now))
        }
        (Some(StepStatus::Succeeded), _) => None,
        (Some(StepStatus::Failed { .. } | StepStatus::Cancelled), _) => {
            pairing::given_back(node, now)
        }
    }
}

/// A node that the health check on it found unfit, and had drained by its scheduler: as one whose gate failed. Nothing where somebody else drained it, or
/// while that was seen only once.
pub(super) fn unfit(node: &Snapshot, now: Timestamp, out: &SchedulerOut) -> Option<Decision> {
    let said = out
        .reason
        .as_deref()
        .filter(|_| out.steady)?
        .strip_prefix(OUR_REASON)?
        .trim_start();
    let cause = Cause::health(&Unfit::parse(said)?);
    match taken_out(node, now, cause) {
        Decision::Granted(left) => Some(Wait::rest(
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

/// A sweep with gates that gave no answer: those that need a drained node are not run beside jobs, and that is as it should be.
fn unclear(results: &[GateResult], now: Timestamp) -> String {
    match results
        .iter()
        .any(|result| result.verdict == Verdict::Error && !result.shadow)
    {
        true => format!("swept without an answer: {}", unanswered(results, now)),
        false => format!(
            "swept: nothing found; not run: {}",
            unanswered(results, now)
        ),
    }
}

/// Out of service for its fault, unless something says that it is not the node's, or somebody has it in hand already: on the way back their drain would be
/// gone. What was measured is not forgotten: a node that must wait its turn asks again, one that failed too often goes to a person instead of to its ladder.
pub(super) fn taken_out(node: &Snapshot, now: Timestamp, cause: Cause) -> Decision {
    let left =
        |why: &str| Decision::Granted(format!("{}; it is left in service: {why}", cause.what));
    let out = Move {
        purpose: Some(Purpose::Repair),
        ..Move::to(State::Draining)
    }
    .with(Effect::WishTaken);
    let theirs = node
        .scheduler
        .as_ref()
        .and_then(SchedulerOut::by_somebody_else);
    match (&node.hold, theirs) {
        _ if node.protected => left("it is protected"),
        (_, Some(theirs)) => left(&format!(
            "whoever keeps it from jobs has it in hand ({theirs})"
        )),
        (Some(Hold::Fleet(why) | Hold::Pool(why)), None) => left(why),
        (Some(Hold::Later(_)), None) if node.stop => left("its sweep was stopped"),
        (Some(Hold::Later(why)), None) => in_turn(now, why),
        (Some(Hold::Node(why)), None) => {
            Decision::Advance(out.because(format!("{}; {why}", cause.what)))
        }
        (None, None) => Decision::Advance(out.because(cause.what.clone()).on(Ladder::Begin(cause))),
    }
}

/// Others are recovered before it.
fn in_turn(now: Timestamp, why: &str) -> Decision {
    Decision::Wait(Wait {
        reason: WaitReason::RecoveryTurn,
        condition: format!("its turn to be recovered: {why}"),
        owner: "muster".into(),
        next_action: "begin its recovery".into(),
        until: Some(now + jiff::SignedDuration::from_secs(ASK_AGAIN_S)),
    })
}

/// A node on its way into service, or back, that fails: the next rung, or quarantine. `to` is where it goes where nothing is to be tried.
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
            quarantine(Ended::Spent, format!("{what}; tried in vain: {tried}"))
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

/// The end of a recovery that did not help.
fn quarantine(how: Ended, why: String) -> Decision {
    Decision::Advance(Move::to(State::Quarantined).because(why).on(Ladder::End {
        how,
        went: Vec::new(),
    }))
}

/// Why a step of this stay could not be done.
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

/// What has no answer that counts, as people read it.
pub(super) fn unanswered(results: &[GateResult], now: Timestamp) -> String {
    summary(results, now, |result| match result.verdict {
        Verdict::Error => true,
        Verdict::Skipped => result.required,
        Verdict::Pass | Verdict::Fail => false,
    })
}

/// What is in the way, as people read it; neither shadows nor what is waived.
pub(super) fn summary(
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
        "a required gate gave no result".into()
    } else {
        told.join("; ")
    }
}
