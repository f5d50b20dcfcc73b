//! The plan of the rack's cables against what the machines heard of their switch: two cables are in each other's ports, and the others are right.

use anyhow::{Context, ensure};
use muster_api::client::Precondition;
use muster_core::cabling::{Cable, CableState};
use serde_json::json;

use super::cast::{FAILING, GOOD, SMALL};
use super::programs::Programs;
use super::watch::Watch;
use crate::RackPlan;
use crate::switch;

/// The places of the machines whose cables are swapped.
pub(super) const CROSSED: [usize; 2] = [1, 2];

/// Declares the plan, now that the facts say what the interfaces are called, and reads what came of it.
pub(super) async fn is_looked_at(plan: &RackPlan, programs: &Programs, watch: &Watch) -> anyhow::Result<()> {
    let client = programs.client();
    let cables = planned(plan, programs).await?;
    let patch = json!({ "spec": { "cables": cables } });
    client.patch_value(&["racks", "r1"], &[], &patch, Precondition::None).await.context("declare the cables")?;
    let found = client.rack_cabling("r1").await?;
    let told = programs.cli(&["rack", "cabling", "r1", "-o", "wide"], &[]).await?;
    for cable in &found.cables {
        let swapped = [FAILING, SMALL].contains(&cable.node.as_str()) && cable.port.starts_with("Ethernet1/");
        let wanted = if swapped { CableState::Swapped } else { CableState::Right };
        ensure!(cable.state == wanted, "{} {} is not {wanted:?}:\n{told}", cable.node, cable.nic);
    }
    ensure!(found.cables.len() == cables.len() && found.wrong == 2, "two of {} are swapped:\n{told}", cables.len());
    let [sentence] = found.findings.as_slice() else { anyhow::bail!("one walk to the rack, not {:?}", found.findings) };
    watch.say(&format!("{} cables are held against the rack's plan: {sentence}", cables.len()));
    println!("{}", told.trim_end());
    Ok(())
}

/// A cable for every card of every machine that was looked at, into the port that it belongs in.
async fn planned(plan: &RackPlan, programs: &Programs) -> anyhow::Result<Vec<Cable>> {
    let mut cables = Vec::new();
    for (index, machine) in plan.machines.iter().enumerate() {
        let node = machine.name.as_str();
        if ![GOOD, FAILING, SMALL].contains(&node) {
            continue;
        }
        let facts = programs.client().node_facts(node).await?.facts;
        for (card, mac) in [Some(machine.mac), machine.second_mac].into_iter().flatten().enumerate() {
            let nic = facts.nics.iter().find(|nic| nic.mac == mac);
            let nic = nic.with_context(|| format!("the facts of {node} lack {mac}"))?.name.clone();
            let port = switch::port(index, card);
            cables.push(Cable { node: node.to_owned(), nic, switch: switch::NAME.to_owned(), port });
        }
    }
    Ok(cables)
}
