//! What a change costs the machines it reaches: the one place that says so. The API, the console, the CLI and Terraform show its answer.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::images::ImageManifest;
use crate::lifecycle::state::{State, UnknownWord, Wish, words};
use crate::stacks::diff::{self, Class};
use crate::stacks::language::Expectations;
use crate::stacks::{StackLock, StackSpec};

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
        Wish::Adopt | Wish::Drain | Wish::Undrain | Wish::Quarantine | Wish::Maintain | Wish::RotateBmc => {
            Effect::InPlace
        }
        // Beside its jobs where it is in service; in the live image anywhere else.
        Wish::Inspect if state == State::InService => Effect::InPlace,
        Wish::Accept | Wish::Inspect | Wish::Recover | Wish::Resume | Wish::Reinstate | Wish::ReplaceParts => {
            Effect::Reboot
        }
        // Gates are run in the live image where it has no system of its own.
        Wish::PowerOn | Wish::PowerOff | Wish::PowerCycle | Wish::RunGates | Wish::Converge => Effect::Reboot,
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

/// What it takes to bring a node from one stack to another, by the dearest class of what differs. A driver is loaded anew by a reboot: converge unloads
/// no module under devices that run.
pub fn of_stack(before: &StackSpec, after: &StackSpec) -> Effect {
    // Whom it is for, what it fits and what it expects are no part of a node; nor is where its packages came from.
    let words = |stack: &StackSpec| StackSpec {
        lock: stack.lock.as_ref().map(|lock| StackLock { repositories: Vec::new(), ..lock.clone() }),
        version: String::new(),
        bundle: None,
        selector: None,
        beside: BTreeMap::new(),
        known_bad: Vec::new(),
        expects: Expectations::default(),
        ..stack.clone()
    };
    match diff::class_between(before, after) {
        Class::Reinstall => Effect::Reinstall,
        Class::Reboot | Class::DriverReload => Effect::Reboot,
        Class::ServiceRestart => Effect::InPlace,
        Class::None if words(before) != words(after) => Effect::InPlace,
        Class::None => Effect::None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stack(change: &serde_json::Value) -> StackSpec {
        let mut stack = json!({ "version": "1", "image": "debian-12" });
        for (member, value) in change.as_object().unwrap() {
            stack[member] = value.clone();
        }
        serde_json::from_value(stack).unwrap()
    }

    fn locked(name: &str) -> serde_json::Value {
        let digest = crate::values::Digest::of(b"x");
        json!({ "image_digest": digest, "arch": "amd64", "packages": [
            { "name": name, "version": "1", "arch": "amd64", "size": 1, "sha256": digest, "filename": "x.deb" }] })
    }

    #[test]
    fn a_stack_costs_what_its_dearest_difference_costs() {
        let of = |change: serde_json::Value| of_stack(&stack(&json!({})), &stack(&change));
        assert_eq!(of(json!({})), Effect::None);
        assert_eq!(of(json!({ "version": "2" })), Effect::None);
        assert_eq!(of(json!({ "firmware": [{ "component": "bios", "version": "2" }] })), Effect::Reboot);
        assert_eq!(
            of(json!({ "firmware": [{ "component": "bmc", "version": "2", "class": "none" }] })),
            Effect::InPlace
        );
        assert_eq!(of(json!({ "bios": [{ "attributes": { "Turbo": true } }] })), Effect::Reboot);
        assert_eq!(of(json!({ "sysctl": { "vm.swappiness": "1" } })), Effect::InPlace);
        assert_eq!(of(json!({ "lock": locked("chrony") })), Effect::InPlace);
        assert_eq!(of(json!({ "lock": locked("linux-image-6.1.0-18-amd64") })), Effect::Reboot);
        assert_eq!(of(json!({ "lock": locked("nvidia-driver-580") })), Effect::Reboot);
        assert_eq!(of(json!({ "lock": locked("nvidia-fabricmanager-580") })), Effect::InPlace);
        assert_eq!(of(json!({ "kernel_args": ["quiet"], "sysctl": { "a": "b" } })), Effect::Reboot);
        assert_eq!(of(json!({ "image": "debian-13", "kernel_args": ["quiet"] })), Effect::Reinstall);
        assert!(
            Effect::None < Effect::InPlace && Effect::Reboot < Effect::Reinstall && Effect::Reinstall < Effect::Wipe
        );
    }

    #[test]
    fn every_wish_says_what_it_does_in_every_state() {
        for wish in Wish::ALL {
            for state in State::ALL {
                let effect = of_wish(*wish, *state, None);
                assert_eq!(effect == Effect::Wipe, matches!(wish, Wish::Wipe | Wish::Release), "{wish} in {state}");
                assert_eq!(effect >= Effect::Reinstall, erases(*wish), "{wish} in {state}: is it in ERASES?");
            }
        }
        assert_eq!(of_wish(Wish::Inspect, State::InService, None), Effect::InPlace);
        assert_eq!(of_wish(Wish::Inspect, State::Available, None), Effect::Reboot);
        assert_eq!(of_wish(Wish::Retry, State::Failed, Some(State::Wiping)), Effect::Wipe);
        assert_eq!(of_wish(Wish::Retry, State::Failed, Some(State::Imaging)), Effect::Reinstall);
    }
}
