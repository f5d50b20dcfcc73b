//! Not to be used until a person decides. Leaves by recovery, release, another wipe, or retirement.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, leave_cluster, rest};
use super::snapshot::Snapshot;
use super::state::{State, Wish};
use crate::claims::ClaimState;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if node.releasing() && !node.protected {
        return leave_cluster(node, now, Move::released(State::Wiping));
    }
    // Data of the claim that holds it stays with it; anybody else's must be gone first.
    let unsanitised = node.unsanitised && node.claim.is_none();
    match node.wish {
        Some(Wish::ReplaceParts) => {
            leave_cluster(node, now, Move::to(State::Inspecting).as_wished(node).with(Effect::ForgetLive))
        }
        Some(Wish::Recover) if !unsanitised => {
            let claimed = node.claim == Some(ClaimState::Bound) && node.installed;
            let to = if claimed { State::Validating } else { State::Inspecting };
            Decision::Advance(Move::to(to).as_wished(node).with(Effect::ForgetLive))
        }
        Some(Wish::Wipe) if node.claim.is_none() => Decision::Advance(Move::to(State::Wiping).as_wished(node)),
        Some(Wish::Retire) if node.claim.is_none() => Decision::Advance(Move::to(State::Retired).as_wished(node)),
        _ if unsanitised => rest("a person to wipe it, replace its disks or retire it", "operator", "none until then"),
        _ => rest("a person to recover, release or retire it", "operator", "none until then"),
    }
}
