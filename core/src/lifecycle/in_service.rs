//! Admitted. Left alone: only a release, a drain or a quarantine takes it out, and each goes through the scheduler first.

use super::decision::{Decision, Move, rest};
use super::snapshot::Snapshot;
use super::state::{Purpose, State, Wish};

pub(super) fn decide(node: &Snapshot) -> Decision {
    if node.releasing() && !node.protected {
        return Decision::Advance(Move { purpose: Some(Purpose::Release), ..Move::released(State::Draining) });
    }
    match node.wish {
        Some(Wish::Drain | Wish::Maintain) => {
            Decision::Advance(Move { purpose: Some(Purpose::Maintenance), ..Move::to(State::Draining).as_wished(node) })
        }
        Some(Wish::Quarantine) => {
            Decision::Advance(Move { purpose: Some(Purpose::Repair), ..Move::to(State::Draining).as_wished(node) })
        }
        _ => rest("nothing: it serves", "nobody", "none"),
    }
}
