//! The plan of the rack's cables against what the machines heard of their switch: two cables are in each other's ports, and the others are right.

use anyhow::ensure;
use muster_core::cabling::{Cable, CableState};

use super::cast::{FAILING, GOOD, SMALL};
use super::programs::Programs;
use super::watch::Watch;
use crate::RackPlan;
use crate::switch;

/// The places of the machines whose cables are swapped.
pub(super) const CROSSED: [usize; 2] = [1, 2];
/// What the live image calls a machine's cards, by their places on its bus.
const CARDS: [&str; 2] = ["enp0s2", "enp0s16"];

/// A cable for every card of every machine of the main job, to the port that it belongs in.
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

/// Reads what came of the plan once all were looked at.
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
