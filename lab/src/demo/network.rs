//! Checks the pool's network profile on a node in service. The profile has a bond of both cards and
//! a VLAN over the bond, with an MTU of 9000 bytes.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::addresses::address;
use super::cast::GOOD;
use super::watch::Watch;
use crate::Rack;
use crate::machine::launch::GuestAct;
use crate::plan::{MTU, SECOND_NIC_PCI, VLAN, VLAN_ADDRESS};
use crate::rack::vlan;
use crate::slurm::Slurm;

/// Longest time for an emulated machine to detect a lost link and answer again.
const LIMIT: Duration = Duration::from_secs(60);
/// The kernel's report on the bond.
const BOND: &str = "/proc/net/bonding/bond0";

/// Returns the network profile of the pool.
pub(super) fn profile() -> Value {
    let card = |is: Value| json!({ "is": is, "mtu": MTU });
    json!({
        "interfaces": { "first": card(json!({ "boot": true })), "second": card(json!({ "pci": SECOND_NIC_PCI })) },
        "bonds": { "bond0": { "members": ["first", "second"], "mode": "active-backup", "primary": "first" } },
        "vlans": { "storage": {
            "id": VLAN, "over": "bond0",
            "addresses": [{ "beside": { "subnet": "provisioning", "network": format!("{}/24", network()) } }],
        }},
    })
}

/// Returns the network address of the VLAN.
fn network() -> Ipv4Addr {
    let [a, b, c, _] = VLAN_ADDRESS.octets();
    Ipv4Addr::new(a, b, c, 0)
}

/// Checks bond and VLAN on the node and sends large packets from outside. Then the active member's
/// cable is pulled, and the packets are sent again.
pub(super) async fn check_network(rack: &Rack, slurm: &Slurm, watch: &Watch) -> anyhow::Result<()> {
    let first = check_bond(slurm).await?;
    check_vlan(slurm).await?;
    let [_, _, _, last] = address(0).octets();
    let [a, b, c, _] = network().octets();
    let node = Ipv4Addr::new(a, b, c, last);
    let took = answers(rack, node).await?;
    watch.say(&format!(
        "bond0 of {GOOD} has both members up, {first} active; {node} in VLAN {VLAN} answers {MTU} bytes in {took:?}"
    ));
    let machine = &rack.slot(GOOD)?.machine;
    machine.inflict(GuestAct::SetLink { up: false }).await?;
    let pulled = async {
        let took = answers(rack, node)
            .await
            .context("without the active member's cable")?;
        let bond = read_file(slurm, BOND).await?;
        ensure!(
            active_member(&bond).is_some_and(|now| now != first),
            "{first} is still active without its cable:\n{bond}"
        );
        anyhow::Ok(took)
    };
    let took = pulled.await;
    machine.inflict(GuestAct::SetLink { up: true }).await?;
    watch.say(&format!(
        "the cable of {first} is pulled: {node} answers {MTU} bytes again after {:?}; it is in again",
        took?
    ));
    Ok(())
}

/// Reads a file on the node by a Slurm job.
async fn read_file(slurm: &Slurm, path: &str) -> anyhow::Result<String> {
    let text = slurm
        .srun(&["-p", "gpu", "-D", "/", "-w", GOOD, "cat", path])
        .await?;
    Ok(text)
}

fn active_member(bond: &str) -> Option<String> {
    bond.lines().find_map(|line| {
        line.strip_prefix("Currently Active Slave: ")
            .map(str::to_owned)
    })
}

/// Checks that both members of the bond are up. Returns the active member.
async fn check_bond(slurm: &Slurm) -> anyhow::Result<String> {
    let bond = read_file(slurm, BOND).await?;
    let up = bond
        .lines()
        .filter(|line| *line == "MII Status: up")
        .count();
    let members = bond
        .lines()
        .filter(|line| line.starts_with("Slave Interface: "))
        .count();
    // Three status lines: the bond has a line of its own.
    ensure!(
        (members, up) == (2, 3),
        "bond0 of {GOOD} has not both members up:\n{bond}"
    );
    active_member(&bond).context("the bond has no active member")
}

async fn check_vlan(slurm: &Slurm) -> anyhow::Result<()> {
    let vlans = read_file(slurm, "/proc/net/vlan/config").await?;
    let words = vlans.lines().map(|line| {
        line.split(['|', ' '])
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
    });
    let tagged = ["storage", &VLAN.to_string(), "bond0"].map(str::to_owned);
    ensure!(
        words.into_iter().any(|words| words == tagged),
        "{GOOD} has no VLAN {VLAN} over bond0:\n{vlans}"
    );
    for link in ["bond0", "storage"] {
        let mtu = read_file(slurm, &format!("/sys/class/net/{link}/mtu")).await?;
        ensure!(
            mtu.trim() == MTU.to_string(),
            "{link} of {GOOD} has MTU {mtu}"
        );
    }
    Ok(())
}

/// Returns the time until an unfragmented echo of the full MTU comes back. Runs in the rack's
/// namespace on a blocking thread.
async fn answers(rack: &Rack, node: Ipv4Addr) -> anyhow::Result<Duration> {
    let netns = rack.netns.clone();
    let asked = tokio::task::spawn_blocking(move || netns.within(move || vlan::ask(node, LIMIT)));
    asked
        .await
        .context("the task")?
        .context("the rack's namespace")?
}

#[cfg(test)]
mod tests {
    use muster_core::network::NetworkProfile;

    use super::*;

    #[test]
    fn the_profile_is_one() {
        let profile: NetworkProfile = serde_json::from_value(profile()).unwrap();
        assert_eq!(profile.faults(), []);
    }
}
