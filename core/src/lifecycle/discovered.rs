//! Seen on the network or declared, and not yet accepted: no step runs. An adopted node serves with
//! its present system.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, on_the_spot, rest};
use super::snapshot::Snapshot;
use super::state::{Action, State};
use super::steps::Step;
use super::wait::WaitReason;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    match node.action {
        Some(Action::Accept) => Decision::Advance(Move::to(State::Inspecting).as_requested(node)),
        Some(Action::Adopt) => on_the_spot(
            node,
            now,
            &[Step::Adopt, Step::Inventory, Step::Drift],
            || {
                let adopted = Move::to(State::InService).as_requested(node);
                Decision::Advance(adopted.with(Effect::Adopted).with(Effect::JoinCluster))
            },
        ),
        Some(Action::Reject) => Decision::Advance(Move::to(State::Retired).as_requested(node)),
        _ => rest(
            WaitReason::Person,
            "a person to accept, adopt or reject the node",
            "operator",
            "none until a person decides",
        ),
    }
}
