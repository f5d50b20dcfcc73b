//! Actions requested on a node at rest: power, gates without effect on the node's state, the BMC
//! password, and an installation. No user job is lost.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, leave_cluster, on_the_spot};
use super::snapshot::Snapshot;
use super::state::State;
use super::steps::Step;
use crate::gates::Verdict;

/// Powers off through the operating system, or through the BMC if the system does not answer.
pub(super) fn power_off(node: &Snapshot, now: Timestamp) -> Decision {
    cancel_former_step(node)
        .unwrap_or_else(|| on_the_spot(node, now, &[Step::PowerOff], || granted("the node is off")))
}

pub(super) fn power_on(node: &Snapshot, now: Timestamp) -> Decision {
    cancel_former_step(node)
        .or_else(|| kept_off(node))
        .unwrap_or_else(|| on_the_spot(node, now, &[Step::PowerOn], || granted("the node is on")))
}

pub(super) fn power_cycle(node: &Snapshot, now: Timestamp) -> Decision {
    cancel_former_step(node)
        .or_else(|| kept_off(node))
        .unwrap_or_else(|| {
            on_the_spot(node, now, &[Step::PowerCycle], || {
                granted("the node went through its firmware")
            })
        })
}

/// Changes the BMC password, in service too and beside running jobs, because the password does not
/// affect the host.
pub(super) fn rotate_bmc(node: &Snapshot, now: Timestamp) -> Decision {
    let answers = || granted("the BMC accepts the new password");
    cancel_former_step(node)
        .or_else(|| {
            node.power_person
                .as_ref()
                .map(|person| Decision::Refused(format!("the node has no BMC: ask {person}")))
        })
        .unwrap_or_else(|| on_the_spot(node, now, &[Step::RotateBmc], answers))
}

/// Installs the stack of the claim's revision, and then runs the gates. Refused without a system of
/// the claim.
pub(super) fn converge(node: &Snapshot, now: Timestamp) -> Decision {
    if !node.holds_its_system() {
        return Decision::Refused("the disks hold no system of a claim: reinstall the node".into());
    }
    install(node, now, State::Installing)
}

/// Writes the image of the claim's revision, then installs the stack and runs the gates. The node has
/// a bound claim.
pub(super) fn reinstall(node: &Snapshot, now: Timestamp) -> Decision {
    install(node, now, State::Imaging)
}

fn install(node: &Snapshot, now: Timestamp, to: State) -> Decision {
    let moved = Move::to(to).as_requested(node);
    leave_cluster(node, now, moved.with(Effect::ForgetLive))
}

/// Runs gates in the node's installed system if present. Otherwise gates run in the live image, and
/// the node is powered off afterwards in every case.
pub(super) fn run_gates(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(decision) = cancel_former_step(node) {
        return decision;
    }
    if node.holds_its_system() {
        let boot: &[Step] = if node.off { &[Step::BootDisk] } else { &[] };
        return on_the_spot(node, now, &[boot, &[Step::Gates]].concat(), || {
            granted(&describe_verdicts(node))
        });
    }
    let run = on_the_spot(node, now, &[Step::BootLive, Step::Gates], || {
        granted(&describe_verdicts(node))
    });
    let begun = node
        .steps
        .iter()
        .any(|view| view.current && view.step == Step::BootLive);
    match run {
        Decision::Granted(_) | Decision::Refused(_) if begun => {
            on_the_spot(&node.unstoppable(), now, &[Step::PowerOff], || run)
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

/// Cancels a step of an earlier request first, because two steps must not work on the same machine.
fn cancel_former_step(node: &Snapshot) -> Option<Decision> {
    node.active()
        .filter(|view| !view.current)
        .map(|view| Decision::Cancel(view.step))
}

/// Returns the refusal if the machine must not be started.
fn kept_off(node: &Snapshot) -> Option<Decision> {
    if let Some(person) = &node.power_person {
        return Some(Decision::Refused(format!(
            "the node has no BMC: {person} must press the power button"
        )));
    }
    let left = node.unsanitised && node.claim.is_none();
    left.then(|| {
        Decision::Refused(
            "the disks may hold earlier data, and the node would boot from them".into(),
        )
    })
}

fn granted(what: &str) -> Decision {
    Decision::Granted(what.into())
}

fn describe_verdicts(node: &Snapshot) -> String {
    let count = |verdict: Verdict| {
        node.gates
            .iter()
            .filter(|result| result.verdict == verdict)
            .count()
    };
    let counted: Vec<String> = [
        Verdict::Pass,
        Verdict::Fail,
        Verdict::Error,
        Verdict::Skipped,
    ]
    .into_iter()
    .map(|verdict| (verdict, count(verdict)))
    .filter(|(_, count)| *count > 0)
    .map(|(verdict, count)| format!("{count} {}", verdict.as_str()))
    .collect();
    if counted.is_empty() {
        "no gate ran".into()
    } else {
        format!("gates: {}", counted.join(", "))
    }
}
