//! What must hold at the end, whatever was killed on the way: held against the machines' own logs, which no server wrote.

use std::collections::BTreeSet;

use anyhow::ensure;

use super::Until;
use super::follow::Follower;
use crate::simulated::machine::{Machine, Running};
use crate::simulated::rack::Rack;

/// Names every promise that was broken.
///
/// # Errors
/// When there is one.
pub(super) fn check(history: &Follower, rack: &Rack, until: Until) -> anyhow::Result<()> {
    let mut broken: Vec<String> = history.violations.iter().cloned().collect();
    broken.extend(rack.scheduler.violations.iter().cloned());
    for machine in rack.machines.values() {
        broken.extend(acts(machine));
        broken.extend(rests(
            machine,
            rack.scheduler.members.contains(&machine.name),
            until,
        ));
    }
    ensure!(
        broken.is_empty(),
        "{} promises were broken: {}",
        broken.len(),
        broken[..broken.len().min(20)].join("; ")
    );
    Ok(())
}

/// Nothing is done twice under one permit. A claim raises the assignment epoch to an odd number, its release to an even one: an image is
/// written under the first, a wipe done under the second, so no claimed node was wiped and no free one imaged. That each act was permitted at
/// all is the machine's own doing: it writes nothing without the server's signature.
fn acts(machine: &Machine) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut broken = Vec::new();
    for done in &machine.log {
        if !seen.insert(done.permit.0) {
            broken.push(format!(
                "{}: {} and something else under one permit",
                machine.name, done.act
            ));
        }
        let claimed = done.epoch % 2 == 1;
        match &*done.act {
            "image" if !claimed => {
                broken.push(format!("{}: an image without a claim", machine.name))
            }
            "wipe" if claimed => broken.push(format!("{}: wiped under a claim", machine.name)),
            _ => {}
        }
    }
    broken
}

/// Whether it is as its node's last state says.
fn rests(machine: &Machine, listed: bool, until: Until) -> Option<String> {
    let wrong = match until {
        Until::Declared => !machine.log.is_empty(),
        Until::Available => machine.running != Running::Off || listed,
        Until::InService => machine.running != Running::Installed || !listed || machine.empty(),
        Until::Released => machine.running != Running::Off || listed || !machine.empty(),
    };
    let name = &machine.name;
    wrong.then(|| {
        format!(
            "{name} ends {:?}, listed {listed}, empty {}",
            machine.running,
            machine.empty()
        )
    })
}
