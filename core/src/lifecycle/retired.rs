//! Removed from the fleet, kept in the history.

use super::decision::{Decision, Effect, Move, rest};
use super::snapshot::Snapshot;
use super::state::{Action, State};
use super::wait::WaitReason;

pub(super) fn decide(node: &Snapshot) -> Decision {
    match node.action {
        Some(Action::Reinstate) => Decision::Advance(
            Move::to(State::Inspecting)
                .as_requested(node)
                .with(Effect::ForgetLive),
        ),
        _ => rest(
            WaitReason::AtRest,
            "nothing: the node is retired",
            "nobody",
            "none",
        ),
    }
}
