//! Adds the node to the scheduler; done when the controller's own view of the node is clean.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, follow, interrupted};
use super::snapshot::Snapshot;
use super::state::State;
use super::steps::Step;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(decision) = interrupted(node, now) {
        return decision;
    }
    follow(node, now, &[Step::Admit], || {
        Decision::Advance(Move::to(State::InService).with(Effect::JoinCluster))
    })
}
