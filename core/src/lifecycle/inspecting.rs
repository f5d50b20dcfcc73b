//! Identifies the machine and compares the facts with its profile: live image, inventory, power
//! off.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, follow, interrupted};
use super::snapshot::Snapshot;
use super::state::State;
use super::steps::Step;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(decision) = interrupted(node, now) {
        return decision;
    }
    // After a wipe the live image still runs, so the inspection uses the same boot.
    let booted_here = node.step(Step::BootLive).is_some();
    let boot: &[Step] = if node.live && !booted_here {
        &[]
    } else {
        &[Step::BootLive]
    };
    let steps = [boot, &[Step::Inventory, Step::PowerOff]].concat();
    follow(node, now, &steps, || {
        Decision::Advance(
            compare_with_profile(node)
                .with(Effect::ForgetLive)
                .with(Effect::FreePower),
        )
    })
}

/// Compares the facts with the profile.
fn compare_with_profile(node: &Snapshot) -> Move {
    let (Some(profile), Some(facts)) = (&node.profile, &node.facts) else {
        return Move::to(State::Quarantined)
            .because("no hardware profile to compare the facts with");
    };
    let mut misses: Vec<String> = profile
        .misses(facts)
        .iter()
        .map(ToString::to_string)
        .collect();
    if let Err(error) = profile.root_disk(facts) {
        misses.push(error.to_string());
    }
    let quarantined = |why: String| Move::to(State::Quarantined).because(why);
    if node.unsanitised && node.claim.is_none() {
        let why = node
            .data_left
            .as_deref()
            .unwrap_or("the disks may hold data, and no wipe was verified");
        return quarantined(format!("unsanitised: {why}"));
    }
    if !node.disputed_parts.is_empty() {
        return quarantined(format!(
            "the parts differ from the recorded ones: {}",
            node.disputed_parts.join("; ")
        ));
    }
    match misses.is_empty() {
        true => Move::to(State::Available),
        false => quarantined(format!(
            "the hardware differs from the profile: {}",
            misses.join("; ")
        )),
    }
}
