//! The image goes onto the one disk that the profile's rule names.

use jiff::Timestamp;

use super::decision::{Decision, Move, follow, interrupted};
use super::snapshot::Snapshot;
use super::state::State;
use super::steps::Step;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(decision) = interrupted(node, now) {
        return decision;
    }
    // The live session is kept: without a BMC, rebooting from there saves a walk to the machine.
    follow(node, now, &[Step::BootLive, Step::WriteImage], || Decision::Advance(Move::to(State::Installing)))
}
