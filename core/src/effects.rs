//! The impact of a change on the affected machines, defined only here. The API, the console, the
//! CLI and Terraform show this result.

use crate::images::ImageManifest;
use crate::lifecycle::state::{Action, State};
use crate::words;

words! {
    /// The impact, from the cheapest to the most expensive. For several changes the most expensive
    /// counts.
    #[derive(PartialOrd, Ord)]
    Effect, "effect" {
        /// No machine is affected.
        None = "none",
        /// The machine changes while running.
        InPlace = "in_place",
        /// The machine is reset, powered or booted into the live image; its disks stay.
        Reboot = "reboot",
        /// The root disk is overwritten.
        Reinstall = "reinstall",
        /// All disks of the machine are erased.
        Wipe = "wipe",
    }
}

/// Requested actions that erase a disk beyond recovery. Each request needs the node's version as
/// read (`If-Match`), and a typed confirmation in the console. All such requests count together
/// against the hourly limits per person and per pool. Above a limit each request needs a second
/// person.
///
/// A `retry` of such an action is not counted again. Reinstalls by a recovery are bounded by the
/// pool's policy and count against the pool's limit. Reinstalls by a rollout are bounded by the
/// plan.
pub const ERASES: &[Action] = &[Action::Release, Action::Wipe, Action::Reinstall];

/// Returns whether a requested action erases a disk.
pub fn erases(action: Action) -> bool {
    ERASES.contains(&action)
}

/// Returns the impact of a requested action on a node in the given state. For a failed node,
/// `failed` is the state that failed.
pub fn of_action(action: Action, state: State, failed: Option<State>) -> Effect {
    match action {
        Action::Reject | Action::Retire | Action::CheckDrift | Action::Sweep => Effect::None,
        // Only the scheduler state changes; the machine keeps running.
        Action::Adopt
        | Action::Drain
        | Action::Undrain
        | Action::Quarantine
        | Action::Maintain
        | Action::RotateBmc => Effect::InPlace,
        // In service, inspection runs beside the jobs. In any other state the node boots the live
        // image.
        Action::Inspect if state == State::InService => Effect::InPlace,
        Action::Accept
        | Action::Inspect
        | Action::Recover
        | Action::Resume
        | Action::Reinstate
        | Action::ReplaceParts => Effect::Reboot,
        // A node without an installed system runs gates in the live image.
        Action::PowerOn
        | Action::PowerOff
        | Action::PowerCycle
        | Action::RunGates
        | Action::Converge => Effect::Reboot,
        Action::Reinstall => Effect::Reinstall,
        Action::Retry => match failed {
            Some(State::Wiping) => Effect::Wipe,
            Some(State::Imaging) => Effect::Reinstall,
            Some(State::Admitting | State::Draining) => Effect::InPlace,
            _ => Effect::Reboot,
        },
        Action::Release | Action::Wipe => Effect::Wipe,
    }
}

/// Returns the impact of moving a node between two images.
pub fn of_image(before: &ImageManifest, after: &ImageManifest) -> Effect {
    match before.raw_digest == after.raw_digest {
        true => Effect::None,
        false => Effect::Reinstall,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_says_what_it_does_in_every_state() {
        for action in Action::ALL {
            for state in State::ALL {
                let effect = of_action(*action, *state, None);
                assert_eq!(
                    effect == Effect::Wipe,
                    matches!(action, Action::Wipe | Action::Release),
                    "{action} in {state}"
                );
                assert_eq!(
                    effect >= Effect::Reinstall,
                    erases(*action),
                    "{action} in {state}: is it in ERASES?"
                );
            }
        }
        assert_eq!(
            of_action(Action::Inspect, State::InService, None),
            Effect::InPlace
        );
        assert_eq!(
            of_action(Action::Inspect, State::Available, None),
            Effect::Reboot
        );
        assert_eq!(
            of_action(Action::Retry, State::Failed, Some(State::Wiping)),
            Effect::Wipe
        );
        assert_eq!(
            of_action(Action::Retry, State::Failed, Some(State::Imaging)),
            Effect::Reinstall
        );
    }
}
