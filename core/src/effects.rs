//! What a change costs the machines it reaches: the one place that says so. The API, the console, the CLI and Terraform show its answer.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::images::ImageManifest;
use crate::lifecycle::state::{State, UnknownWord, Wish, words};

words! {
    /// From the cheapest to the dearest; of several changes the dearest counts.
    Effect, "effect" {
        /// Nothing reaches a machine.
        None = "none",
        /// Something changes on it while it runs.
        InPlace = "in_place",
        /// It is reset, powered or booted into the live image; its disks stay.
        Reboot = "reboot",
        /// Its root disk is written anew.
        Reinstall = "reinstall",
        /// All of its disks are erased.
        Wipe = "wipe",
    }
}

/// The wishes that erase a disk: what is on it is not to be had back. They are asked of a node as it was read (`If-Match`), typed out on a page, and count
/// together against what one person, and one pool, may do in an hour before each needs a second person.
///
/// What goes on with one of them (`retry`) was counted as that; what a recovery installs anew is bounded by its pool's policy.
pub const ERASES: &[Wish] = &[Wish::Release, Wish::Wipe, Wish::Reinstall];

/// Whether a wish erases a disk.
pub fn erases(wish: Wish) -> bool {
    ERASES.contains(&wish)
}

/// What a wish does to a node in this state; of a failed one, by what failed.
pub fn of_wish(wish: Wish, state: State, failed: Option<State>) -> Effect {
    match wish {
        Wish::Reject | Wish::Retire | Wish::CheckDrift | Wish::Sweep => Effect::None,
        // Out of the scheduler or into it again; the machine goes on.
        Wish::Adopt
        | Wish::Drain
        | Wish::Undrain
        | Wish::Quarantine
        | Wish::Maintain
        | Wish::RotateBmc => Effect::InPlace,
        // Beside its jobs where it is in service; in the live image anywhere else.
        Wish::Inspect if state == State::InService => Effect::InPlace,
        Wish::Accept
        | Wish::Inspect
        | Wish::Recover
        | Wish::Resume
        | Wish::Reinstate
        | Wish::ReplaceParts => Effect::Reboot,
        // Gates are run in the live image where it has no system of its own.
        Wish::PowerOn | Wish::PowerOff | Wish::PowerCycle | Wish::RunGates | Wish::Converge => {
            Effect::Reboot
        }
        Wish::Reinstall => Effect::Reinstall,
        Wish::Retry => match failed {
            Some(State::Wiping) => Effect::Wipe,
            Some(State::Imaging) => Effect::Reinstall,
            Some(State::Admitting | State::Draining) => Effect::InPlace,
            _ => Effect::Reboot,
        },
        Wish::Release | Wish::Wipe => Effect::Wipe,
    }
}

/// What it takes to bring a node from one image to another.
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
    fn every_wish_says_what_it_does_in_every_state() {
        for wish in Wish::ALL {
            for state in State::ALL {
                let effect = of_wish(*wish, *state, None);
                assert_eq!(
                    effect == Effect::Wipe,
                    matches!(wish, Wish::Wipe | Wish::Release),
                    "{wish} in {state}"
                );
                assert_eq!(
                    effect >= Effect::Reinstall,
                    erases(*wish),
                    "{wish} in {state}: is it in ERASES?"
                );
            }
        }
        assert_eq!(
            of_wish(Wish::Inspect, State::InService, None),
            Effect::InPlace
        );
        assert_eq!(
            of_wish(Wish::Inspect, State::Available, None),
            Effect::Reboot
        );
        assert_eq!(
            of_wish(Wish::Retry, State::Failed, Some(State::Wiping)),
            Effect::Wipe
        );
        assert_eq!(
            of_wish(Wish::Retry, State::Failed, Some(State::Imaging)),
            Effect::Reinstall
        );
    }
}
