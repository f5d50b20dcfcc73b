//! The image goes onto the one disk that the profile's rule names.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, follow, interrupted};
use super::snapshot::Snapshot;
use super::state::State;
use super::steps::Step;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(decision) = interrupted(node, now) {
        return decision;
    }
    follow(node, now, &[Step::BootLive, Step::WriteImage], || {
        Decision::Advance(Move::to(State::Installing).with(Effect::ForgetLive))
    })
}
