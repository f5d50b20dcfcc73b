//! Invariants at the end of a run, valid after any kill. Every invariant is checked against the
//! machines' own logs, written without the server.

use std::collections::BTreeSet;

use anyhow::ensure;

use super::Until;
use super::follow::Follower;
use crate::simulated::machine::{Machine, Running};
use crate::simulated::rack::Rack;

/// Checks all invariants.
///
/// # Errors
/// When an invariant is violated. The message counts the violations and names the first 20.
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

/// Checks that every permit was used for a single act. A claim raises the assignment epoch to an
/// odd number, its release to an even number. Images are written in odd epochs and wipes done in
/// even epochs, so a claimed node is never wiped and a free node never imaged. The machine checks
/// the permit for every act: without the server's signature, a machine writes no data.
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

/// Returns a sentence when the machine's power, disks or Slurm entry do not match the final state
/// of its node.
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
