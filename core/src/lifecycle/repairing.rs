//! A ladder's rung. The first version has no ladder: a node that got here goes back to its gates.

use jiff::Timestamp;

use super::decision::{Decision, Move, interrupted};
use super::snapshot::Snapshot;
use super::state::State;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    interrupted(node, now).unwrap_or_else(|| Decision::Advance(Move::to(State::Validating).because("verify by gates")))
}
