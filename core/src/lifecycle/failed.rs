//! A phase ran out of retries. Retried at the entry of that phase, released, quarantined, or handed to a person.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, leave_cluster, rest};
use super::snapshot::Snapshot;
use super::state::{Purpose, State, Wish};

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    let phase = node.failed_phase.unwrap_or(State::Inspecting);
    let purpose = (phase == State::Draining).then_some(match node.releasing() {
        true => Purpose::Release,
        false => Purpose::Maintenance,
    });
    // A release that failed on its way waits for a person: going on by itself would skip the drain, or try the wipe for ever.
    let failed_release = matches!(phase, State::Draining | State::Wiping) && node.wish != Some(Wish::Release);
    if node.releasing() && !node.protected && !failed_release {
        return match phase {
            State::Draining => Decision::Advance(Move { purpose, ..Move::released(State::Draining) }),
            _ => leave_cluster(node, now, Move::released(State::Wiping)),
        };
    }
    let wished = |to| Decision::Advance(Move::to(to).as_wished(node));
    match node.wish {
        Some(Wish::Retry) => {
            Decision::Advance(Move { purpose, ..Move::to(phase) }.as_wished(node).with(Effect::ForgetLive))
        }
        Some(Wish::Quarantine) => wished(State::Quarantined),
        Some(Wish::Maintain) => wished(State::Maintenance),
        _ => rest("a person to retry, release or quarantine it", "operator", "none until then"),
    }
}
