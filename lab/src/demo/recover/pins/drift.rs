//! Changes by hand on the machine. The comparison names every changed item, and a converge repairs
//! all of them to the revision assigned to the claim.

use anyhow::{Context, ensure};

use super::super::cast::Cast;
use super::super::packages::check_versions;
use super::super::tuple::{SERVICE, TUPLE};
use super::node::{NODE, converge_node};

/// Changes the machine by hand, reads the differences, and repairs the machine.
pub(super) async fn repair_changes(cast: &Cast<'_>) -> anyhow::Result<()> {
    cast.watch.say(
        "4. by hand: the packages go back to 1.0, a file is edited, a kernel parameter is set, a service is stopped",
    );
    change_machine(cast).await?;
    println!("{}", compare_node(cast).await?.trim_end());
    let mut changed: Vec<String> = TUPLE
        .iter()
        .map(|(name, _)| format!("package {name}"))
        .collect();
    changed.extend([
        "file /etc/nccl.conf".into(),
        format!("service {SERVICE}"),
        "sysctl vm.swappiness".into(),
    ]);
    changed.sort();
    let drift = cast.programs.client().node_drift(NODE).await?;
    let mut found: Vec<&str> = drift.items.iter().map(|item| item.item.as_str()).collect();
    found.sort_unstable();
    ensure!(
        found == changed,
        "the comparison names {found:?}, and {changed:?} were changed"
    );
    check_versions(cast, NODE, "1.0")
        .await
        .context("a comparison repairs no package")?;
    converge_node(cast).await?;
    check_versions(cast, NODE, "2.0").await?;
    let compared = compare_node(cast).await?;
    ensure!(
        compared.contains("no difference"),
        "a difference is left:\n{compared}"
    );
    Ok(())
}

async fn change_machine(cast: &Cast<'_>) -> anyhow::Result<()> {
    let names: Vec<String> = TUPLE
        .iter()
        .map(|(name, _)| format!("{name}=1.0"))
        .collect();
    let downgrade = format!(
        "DEBIAN_FRONTEND=noninteractive apt-get -y --allow-downgrades install {}",
        names.join(" ")
    );
    let stop = format!("systemctl stop {SERVICE}");
    let veteran = cast.veteran(NODE)?;
    for command in [
        downgrade.as_str(),
        "echo NCCL_DEBUG=INFO >/etc/nccl.conf",
        "sysctl -q -w vm.swappiness=60",
        stop.as_str(),
    ] {
        veteran.run(&[command]).await?;
    }
    Ok(())
}

/// Compares the node with its stack now. Returns the output of the command.
async fn compare_node(cast: &Cast<'_>) -> anyhow::Result<String> {
    let verb = ["stack", "drift", NODE, "--look"];
    cast.programs.cli(&verb, &[]).await
}
