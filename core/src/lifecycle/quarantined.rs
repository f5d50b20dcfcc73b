//! Unused until a person decides. The node leaves by recovery, release, another wipe, or
//! retirement.

use jiff::Timestamp;

use super::asked;
use super::decision::{Decision, Effect, Move, leave_cluster, rest, stop_first};
use super::snapshot::Snapshot;
use super::state::{Action, State};
use super::wait::WaitReason;
use crate::claims::ClaimState;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if node.releasing() && !node.protected {
        return stop_first(node, || {
            leave_cluster(node, now, Move::released(State::Wiping))
        });
    }
    // Data of the holding claim may stay. Data of any other claim must be erased first.
    let unsanitised = node.unsanitised && node.claim.is_none();
    match node.action {
        Some(Action::ReplaceParts) => leave_cluster(
            node,
            now,
            Move::to(State::Inspecting)
                .as_requested(node)
                .with(Effect::ForgetLive),
        ),
        Some(Action::Recover) if !unsanitised => {
            let to = if node.holds_its_system() {
                State::Validating
            } else {
                State::Inspecting
            };
            Decision::Advance(Move::to(to).as_requested(node).with(Effect::ForgetLive))
        }
        Some(Action::Converge) => asked::converge(node, now),
        Some(Action::Reinstall) if node.claim == Some(ClaimState::Bound) => {
            asked::reinstall(node, now)
        }
        Some(Action::Wipe) if node.claim.is_none() => {
            Decision::Advance(Move::to(State::Wiping).as_requested(node))
        }
        Some(Action::Retire) if node.claim.is_none() => {
            Decision::Advance(Move::to(State::Retired).as_requested(node))
        }
        Some(Action::PowerOn) => asked::power_on(node, now),
        Some(Action::PowerOff) => asked::power_off(node, now),
        Some(Action::PowerCycle) => asked::power_cycle(node, now),
        Some(Action::RotateBmc) => asked::rotate_bmc(node, now),
        Some(Action::RunGates) => asked::run_gates(node, now),
        _ => {
            let (condition, commands) = describe_options(node, unsanitised);
            rest(WaitReason::Person, condition, "operator", &commands)
        }
    }
}

/// Returns the person's options and the matching commands; docs/quarantine.md describes each.
fn describe_options(node: &Snapshot, unsanitised: bool) -> (&'static str, String) {
    let name = &node.name;
    if unsanitised {
        let commands = format!(
            "muster node wipe {name}, muster node replace-parts {name} or muster node retire {name}"
        );
        return (
            "a person to wipe the node, replace its disks or retire it",
            commands,
        );
    }
    if !node.disputed_parts.is_empty() {
        let commands = format!(
            "muster node parts {name} shows the parts; then muster node replace-parts {name}, or muster node recover {name} once the parts are in"
        );
        return (
            "a person to record its parts, or to retire the node",
            commands,
        );
    }
    // The ladder reached its last rung, so software repairs were tried.
    if node.returns_to_maker {
        let commands = format!(
            "muster node rma {name} writes the archive for the maker; then muster node replace-parts {name}"
        );
        return (
            "a person to replace its parts, or to release the node",
            commands,
        );
    }
    match node.claim {
        Some(_) => (
            "a person to recover, release or retire the node",
            format!(
                "muster node gates {name} --failed shows the failed gates; after a repair or waiver muster node recover {name}, else muster claim release"
            ),
        ),
        None => (
            "a person to recover, wipe or retire the node",
            format!(
                "muster node recover {name} after a repair, else muster node wipe {name} or muster node retire {name}"
            ),
        ),
    }
}
