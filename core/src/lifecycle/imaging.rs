//! Writes the image to the single disk selected by the profile's rule.

use jiff::Timestamp;

use super::decision::{Decision, Move, firmware_before, follow, interrupted};
use super::snapshot::Snapshot;
use super::state::State;
use super::steps::Step;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(decision) = interrupted(node, now) {
        return decision;
    }
    // Firmware is set before the first write, because firmware settings decide which hardware the
    // new system finds.
    let firmware = firmware_before(node, Step::BootLive);
    let due = node.needs_inventory && node.step(Step::WriteImage).is_none();
    let look: &[Step] = if due || node.step(Step::Inventory).is_some() {
        &[Step::Inventory]
    } else {
        &[]
    };
    // The live session is kept: on a node without a BMC, a reboot from the live session saves a
    // walk to the machine.
    let steps = [firmware, &[Step::BootLive], look, &[Step::WriteImage]].concat();
    follow(node, now, &steps, || {
        Decision::Advance(Move::to(State::Installing))
    })
}
