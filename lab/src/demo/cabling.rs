//! Compares the rack's cabling plan with the switch neighbors seen by the machines. Two cables are
//! swapped on purpose, and all other cables are right.

use anyhow::ensure;
use muster_core::cabling::{Cable, CableState};

use super::cast::{FAILING, GOOD, SMALL};
use super::programs::Programs;
use super::watch::Watch;
use crate::RackPlan;
use crate::switch;

/// Indices in the plan of the two machines with swapped cables.
pub(super) const CROSSED: [usize; 2] = [1, 2];
/// Names of a machine's network cards in the live image, in the order of their PCI slots.
const CARDS: [&str; 2] = ["enp0s2", "enp0s16"];

/// Returns the planned cables: for every card of every machine of the main job, the right switch
/// port.
pub(super) fn plan(rack: &RackPlan) -> Vec<Cable> {
    let mut cables = Vec::new();
    for (index, machine) in rack.machines.iter().enumerate() {
        let node = machine.name.as_str();
        if ![GOOD, FAILING, SMALL].contains(&node) {
            continue;
        }
        let cards = if machine.second_mac.is_some() {
            &CARDS[..]
        } else {
            &CARDS[..1]
        };
        cables.extend(cards.iter().enumerate().map(|(card, nic)| Cable {
            node: node.to_owned(),
            nic: (*nic).to_owned(),
            switch: switch::NAME.to_owned(),
            port: switch::port(index, card),
        }));
    }
    cables
}

/// Checks the reported state of every planned cable, after all machines were inspected. The API
/// must report the swapped pair as a single finding.
pub(super) async fn is_told(programs: &Programs, watch: &Watch) -> anyhow::Result<()> {
    let found = programs.client().rack_cabling("r1").await?;
    let told = programs.cli(&["rack", "cabling", "r1"], &[]).await?;
    for cable in &found.cables {
        let swapped = [FAILING, SMALL].contains(&cable.node.as_str()) && cable.nic == CARDS[0];
        let wanted = if swapped {
            CableState::Swapped
        } else {
            CableState::Right
        };
        ensure!(
            cable.state == wanted,
            "{} {} is not {wanted:?}:\n{told}",
            cable.node,
            cable.nic
        );
    }
    let [sentence] = found.findings.as_slice() else {
        anyhow::bail!("it is one walk to the rack: {:?}\n{told}", found.findings)
    };
    watch.say(&format!(
        "{} cables are held against what the switch says: {sentence}",
        found.cables.len()
    ));
    println!("{}", told.trim_end());
    Ok(())
}
