//! Erases every disk and verifies by reading back, in the live image; then the node is inspected in
//! the same boot. The wipe starts only after the undo window of the release.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, follow};
use super::snapshot::{Snapshot, StepStatus};
use super::state::State;
use super::steps::Step;
use super::wait::{Wait, WaitReason};
use crate::claims::ClaimState;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if node.claim == Some(ClaimState::Bound) {
        return decide_undone_release(node);
    }
    if let Some(until) = node
        .undo_until
        .filter(|until| now < *until && node.steps.is_empty())
    {
        return Decision::Wait(Wait {
            reason: WaitReason::UndoWindow,
            condition: format!(
                "the undo window of the release to end: the disks are kept until {until:.0}"
            ),
            owner: "muster".into(),
            next_action:
                "boot the live image and wipe the disks; `muster claim undo` keeps the node".into(),
            until: Some(until),
        });
    }
    if let Some(view) = node.step(Step::Wipe)
        && let StepStatus::Failed { failure, .. } = &view.status
        && (!failure.retryable || view.round >= Step::Wipe.max_rounds())
    {
        return quarantine_unsanitised(&failure.message);
    }
    // The inventory finds the disks present now, so a disk added since the last inspection is wiped
    // too.
    follow(
        node,
        now,
        &[Step::BootLive, Step::Inventory],
        || match find_nameless_disks(node) {
            Some(why) => quarantine_unsanitised(&why),
            None => follow(node, now, &[Step::Wipe], || {
                let clean = Move::to(State::Inspecting)
                    .with(Effect::ForgetInstalled)
                    .with(Effect::EndClaim);
                Decision::Advance(clean.with(Effect::Sanitised))
            }),
        },
    )
}

/// Finds disks without a serial number. No permit can name such a disk, so a write is never
/// allowed.
fn find_nameless_disks(node: &Snapshot) -> Option<String> {
    let disks = node.facts.iter().flat_map(|facts| &facts.disks);
    let names: Vec<&str> = disks
        .filter(|disk| disk.serial.is_none())
        .map(|disk| disk.name.as_str())
        .collect();
    let why =
        "a permit cannot name the disk, so a wipe is impossible; remove the disk or set its serial";
    (!names.is_empty()).then(|| format!("disk {} has no serial: {why}", names.join(", ")))
}

fn quarantine_unsanitised(why: &str) -> Decision {
    let reason = format!("unsanitised: {why}");
    Decision::Advance(
        Move::to(State::Quarantined)
            .because(reason)
            .with(Effect::EndClaim),
    )
}

/// Handles an undone release: no disk was erased, and the gates verify that the node is unchanged.
fn decide_undone_release(node: &Snapshot) -> Decision {
    Decision::Advance(match node.steps.is_empty() {
        true => Move::to(State::Validating).because("the release was undone"),
        false => {
            Move::to(State::Quarantined).because("the release was undone after the wipe began")
        }
    })
}
