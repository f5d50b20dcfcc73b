//! Installs the stack on the image: boot from disk, converge, reboot if an item requires a reboot,
//! and verify that no change is left.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, firmware_before, follow, interrupted};
use super::snapshot::Snapshot;
use super::state::State;
use super::steps::Step;
use crate::stacks::ItemOutcome;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(decision) = interrupted(node, now) {
        return decision;
    }
    // After imaging the firmware is already set. A system drained for a stack upgrade sets the
    // firmware now.
    let firmware: &[Step] = if node.live {
        &[]
    } else {
        firmware_before(node, Step::BootDisk)
    };
    follow(
        node,
        now,
        &[firmware, &[Step::BootDisk, Step::Converge]].concat(),
        || {
            let reboots = node
                .converged
                .as_ref()
                .is_some_and(|report| !report.reboot_for.is_empty());
            match reboots || node.step(Step::Reboot).is_some() {
                true => follow(node, now, &[Step::Reboot, Step::Recheck], || {
                    check_after_reboot(node)
                }),
                false => Decision::Advance(Move::to(State::Validating).with(Effect::ForgetLive)),
            }
        },
    )
}

/// Returns the next move after the reboot. The node must then match its stack.
fn check_after_reboot(node: &Snapshot) -> Decision {
    let left: Vec<String> = node
        .converged
        .iter()
        .flat_map(|report| {
            let differing = report
                .items
                .iter()
                .filter(|item| item.outcome == ItemOutcome::Differs)
                .map(|item| item.item.clone());
            differing.chain(report.reboot_for.iter().cloned())
        })
        .collect();
    if left.is_empty() {
        return Decision::Advance(Move::to(State::Validating).with(Effect::ForgetLive));
    }
    let reason = format!(
        "the node differs from the stack after a reboot: {}",
        left.join(", ")
    );
    Decision::Advance(
        Move {
            failed_phase: Some(State::Installing),
            ..Move::to(State::Failed)
        }
        .because(reason),
    )
}
