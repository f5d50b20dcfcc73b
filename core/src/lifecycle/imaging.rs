//! The image goes onto the one disk that the profile's rule names.

use jiff::Timestamp;

use super::decision::{Decision, Move, firmware_before, follow, interrupted};
use super::snapshot::Snapshot;
use super::state::State;
use super::steps::Step;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(decision) = interrupted(node, now) {
        return decision;
    }
    // Before anything of it is written: firmware decides what the new system will find.
    let firmware = firmware_before(node, Step::BootLive);
    // Which cards a network profile means is told by their links as they are now: those of the last inspection may be months old.
    let due = node.has_network_profile && node.step(Step::WriteImage).is_none();
    let look: &[Step] = if due || node.step(Step::Inventory).is_some() {
        &[Step::Inventory]
    } else {
        &[]
    };
    // The live session is kept: without a BMC, rebooting from there saves a walk to the machine.
    let steps = [firmware, &[Step::BootLive], look, &[Step::WriteImage]].concat();
    follow(node, now, &steps, || {
        Decision::Advance(Move::to(State::Installing))
    })
}
