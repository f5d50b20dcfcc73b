//! Not to be used until a person decides. Leaves by recovery, release, another wipe, or retirement.

use jiff::Timestamp;

use super::asked;
use super::decision::{Decision, Effect, Move, leave_cluster, rest, stop_first};
use super::snapshot::Snapshot;
use super::state::{State, Wish};

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if node.releasing() && !node.protected {
        return stop_first(node, || leave_cluster(node, now, Move::released(State::Wiping)));
    }
    // Data of the claim that holds it stays with it; anybody else's must be gone first.
    let unsanitised = node.unsanitised && node.claim.is_none();
    match node.wish {
        Some(Wish::ReplaceParts) => {
            leave_cluster(node, now, Move::to(State::Inspecting).as_wished(node).with(Effect::ForgetLive))
        }
        Some(Wish::Recover) if !unsanitised => {
            let to = if node.holds_its_system() { State::Validating } else { State::Inspecting };
            Decision::Advance(Move::to(to).as_wished(node).with(Effect::ForgetLive))
        }
        Some(Wish::Wipe) if node.claim.is_none() => Decision::Advance(Move::to(State::Wiping).as_wished(node)),
        Some(Wish::Retire) if node.claim.is_none() => Decision::Advance(Move::to(State::Retired).as_wished(node)),
        Some(Wish::PowerOn) => asked::power_on(node, now),
        Some(Wish::PowerOff) => asked::power_off(node, now),
        Some(Wish::PowerCycle) => asked::power_cycle(node, now),
        Some(Wish::RotateBmc) => asked::rotate_bmc(node, now),
        Some(Wish::RunGates) => asked::run_gates(node, now),
        _ if unsanitised => rest("a person to wipe it, replace its disks or retire it", "operator", "none until then"),
        _ => rest("a person to recover, release or retire it", "operator", "none until then"),
    }
}
