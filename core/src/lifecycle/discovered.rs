//! Seen on the wire or declared, and not accepted: nothing is done to it.

use super::decision::{Decision, Move, rest};
use super::snapshot::Snapshot;
use super::state::{State, Wish};

pub(super) fn decide(node: &Snapshot) -> Decision {
    match node.wish {
        Some(Wish::Accept) => Decision::Advance(Move::to(State::Inspecting).as_wished(node)),
        Some(Wish::Reject) => Decision::Advance(Move::to(State::Retired).as_wished(node)),
        _ => rest("a person to accept or reject it", "operator", "none until then"),
    }
}
