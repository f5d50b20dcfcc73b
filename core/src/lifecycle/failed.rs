//! A phase ran out of retries. Retried at the entry of that phase, released, quarantined, or handed to a person.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, leave_cluster, rest};
use super::snapshot::Snapshot;
use super::state::{State, Wish};

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if node.releasing() && !node.protected {
        return leave_cluster(node, now, Move::to(State::Wiping).because("released"));
    }
    let wished = |to| Decision::Advance(Move::to(to).as_wished(node));
    match node.wish {
        Some(Wish::Retry) => {
            let phase = node.failed_phase.unwrap_or(State::Inspecting);
            Decision::Advance(Move::to(phase).as_wished(node).with(Effect::ForgetLive))
        }
        Some(Wish::Quarantine) => wished(State::Quarantined),
        Some(Wish::Maintain) => wished(State::Maintenance),
        _ => rest("a person to retry, release or quarantine it", "operator", "none until then"),
    }
}
