//! In a person's hands. Resumes through inspection or, where its OS is still claimed, through the gates.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, leave_cluster, rest};
use super::snapshot::Snapshot;
use super::state::{State, Wish};
use crate::claims::ClaimState;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    match node.wish {
        _ if node.releasing() && !node.protected => leave_cluster(node, now, Move::released(State::Wiping)),
        Some(Wish::Resume) if node.claim == Some(ClaimState::Bound) && node.installed => {
            Decision::Advance(Move::to(State::Validating).as_wished(node))
        }
        Some(Wish::Resume) => Decision::Advance(Move::to(State::Inspecting).as_wished(node).with(Effect::ForgetLive)),
        Some(Wish::Retire) if node.claim.is_none() => Decision::Advance(Move::to(State::Retired).as_wished(node)),
        Some(Wish::Quarantine) => Decision::Advance(Move::to(State::Quarantined).as_wished(node)),
        _ => rest("a person to resume it", "operator", "none until then"),
    }
}
