//! Admitted and left alone. Only a release, a drain, a quarantine or a new installation takes the
//! node out, and each goes through the scheduler first.

use jiff::Timestamp;

use super::asked;
use super::decision::{Decision, Move, on_the_spot, rest};
use super::faults;
use super::hold;
use super::pairing;
use super::slot;
use super::snapshot::{SchedulerOut, Snapshot};
use super::state::{Action, Purpose, State};
use super::steps::Step;
use super::wait::WaitReason;
use crate::clusters::DrainedBy;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    match decide_by_action(node, now) {
        // A sweep ended or was overtaken by another request. The scheduler must use the node again
        // first.
        over @ (Decision::Granted(_) | Decision::Refused(_)) if node.held_back => {
            hold::given_back(node, now).unwrap_or(over)
        }
        other @ (Decision::Wait(_)
        | Decision::Advance(_)
        | Decision::Start(_)
        | Decision::Retry(..)
        | Decision::Cancel(_)
        | Decision::Granted(_)
        | Decision::Refused(_)) => other,
    }
}

fn decide_by_action(node: &Snapshot, now: Timestamp) -> Decision {
    let wanted = match node.action {
        _ if node.releasing() && !node.protected => Move {
            purpose: Some(Purpose::Release),
            ..Move::released(State::Draining)
        },
        Some(Action::Drain | Action::Maintain) => Move {
            purpose: Some(Purpose::Maintenance),
            ..Move::to(State::Draining).as_requested(node)
        },
        Some(Action::Quarantine) => Move {
            purpose: Some(Purpose::Repair),
            ..Move::to(State::Draining).as_requested(node)
        },
        Some(Action::Converge) => Move {
            purpose: Some(Purpose::Upgrade),
            ..Move::to(State::Draining).as_requested(node)
        },
        Some(Action::Reinstall) => Move {
            purpose: Some(Purpose::Reinstall),
            ..Move::to(State::Draining).as_requested(node)
        },
        Some(Action::Recover) => faults::asked(node),
        Some(Action::Inspect) => return inspect(node, now),
        Some(Action::CheckDrift) => return compare(node, now),
        Some(Action::Sweep) => return faults::sweep(node, now),
        Some(Action::RotateBmc) => return asked::rotate_bmc(node, now),
        _ => {
            return match &node.pairing {
                Some(wanted) => pairing::decide(node, now, wanted),
                None => serve(node, now),
            };
        }
    };
    match (node.active(), &node.no_slot) {
        (Some(view), _) => Decision::Cancel(view.step),
        (None, Some(_)) if node.stop && !node.releasing() => {
            Decision::Refused("stopped on request".into())
        }
        (None, Some(full)) if !node.releasing() => slot::wait(now, full),
        (None, _) => Decision::Advance(wanted),
    }
}

/// Decides without a requested action. If the node's health check drained the node, the fault is
/// handled. For any other drain, the person behind the drain decides when to end it.
fn serve(node: &Snapshot, now: Timestamp) -> Decision {
    if node.held_back {
        return Decision::Granted("the node takes jobs again after the sweep".into());
    }
    let Some(out) = &node.scheduler else {
        return rest(
            WaitReason::AtRest,
            "nothing: the node is in service",
            "nobody",
            "none",
        );
    };
    if let Some(unfit) = faults::handle_health_drain(node, now, out) {
        return unfit;
    }
    if let Some(ended) = end_orphan(node, now, out) {
        return ended;
    }
    let because = out
        .reason
        .as_deref()
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let condition = format!(
        "the scheduler to give the node jobs again; the node's state there is {}{because}",
        out.state
    );
    rest(
        WaitReason::Scheduler,
        &condition,
        "the owner of the drain",
        "none",
    )
}

/// Ends a drain of Muster without a request: the request behind the drain has ended, and its undrain
/// was lost. A drain by another owner stays. Returns `None` once the scheduler was asked; a node that is
/// still out then waits for a person.
fn end_orphan(node: &Snapshot, now: Timestamp, out: &SchedulerOut) -> Option<Decision> {
    match out.by {
        DrainedBy::Muster(_) if out.steady => hold::given_back(node, now),
        DrainedBy::Muster(_)
        | DrainedBy::HealthCheck(_)
        | DrainedBy::Scheduler
        | DrainedBy::Others
        | DrainedBy::Unknown => None,
    }
}

/// Runs an inventory in the installed OS. The inventory only reads, and the node stays in service.
fn inspect(node: &Snapshot, now: Timestamp) -> Decision {
    on_the_spot(node, now, &[Step::Inventory], || {
        Decision::Granted("inspected in service".into())
    })
}

/// Reports the changes a converge would make in the installed OS, and the BMC's values if the stack
/// sets firmware. The comparison only reads.
fn compare(node: &Snapshot, now: Timestamp) -> Decision {
    let firmware: &[Step] = if node.sets_firmware {
        &[Step::FirmwareLook]
    } else {
        &[]
    };
    let steps = [firmware, &[Step::Drift]].concat();
    on_the_spot(node, now, &steps, || {
        Decision::Granted("compared with its stack".into())
    })
}
