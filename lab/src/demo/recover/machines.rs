//! Machines already in service before Muster. The first machine is installed and joins the cluster;
//! the other machines get copies of its disk. Then every machine is adopted, its protection is
//! cleared, and the node is converged. Afterwards all nodes are ordinary nodes.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_api::client::{Client, Precondition};
use serde_json::json;

use super::super::cast::state;
use super::super::veteran::Veteran;
use super::super::watch::{Fleet, Watch};
use super::super::{DemoOptions, declare as common};
use super::cast::Cast;
use super::declare::POOL;
use crate::Rack;
use crate::plan::small_disk;
use crate::slurm::Slurm;

/// Longest time for the boots of all emulated machines at once.
const BOOTS: Duration = Duration::from_secs(10 * 60);

/// Builds and switches on all machines of the rack, each with its own system. Waits until the admin
/// of every machine can log in.
pub(super) async fn build<'run>(
    options: &DemoOptions,
    rack: &'run Rack,
    slurm: &Slurm,
    watch: &Watch,
) -> anyhow::Result<Vec<Veteran<'run>>> {
    let mut veterans = Vec::new();
    for number in 1..=u8::try_from(rack.slots().count())? {
        let (name, disk) = (format!("n{number}"), small_disk(number));
        veterans.push(Veteran::new(options, rack, usize::from(number) - 1, &name, &disk).await?);
    }
    let (first, others) = veterans.split_first().context("a rack has machines")?;
    let copies = if others.is_empty() {
        ""
    } else {
        "; the others get copies of its disk"
    };
    watch.say(&format!("{} is installed by hand{copies}", first.name));
    first.build(options).await?;
    first.join(options, slurm).await?;
    first.rest().await?;
    for other in others {
        other.copy_of(first).await?;
    }
    first.start_again().await?;
    watch.say(&format!("boot {}", machines(veterans.len())));
    tokio::time::timeout(BOOTS, try_join_all(veterans.iter().map(Veteran::up)))
        .await
        .context("the machines' boots")??;
    Ok(veterans)
}

/// Brings the machines into service as a user does: adopt, clear the protection, converge. A final
/// sweep must find no failure.
pub(super) async fn into_service(cast: &mut Cast<'_>) -> anyhow::Result<()> {
    let client = cast.programs.client();
    cast.watch
        .say(&format!("adopt {}", machines(cast.veterans.len())));
    try_join_all(cast.veterans.iter().map(|veteran| adopt(cast, veteran))).await?;
    for veteran in &cast.veterans {
        unprotect(client, &veteran.name).await?;
    }
    cast.watch.say("their protection is cleared; converge brings them to their stack, and into Slurm by Muster's hand");
    let nodes = cast.nodes();
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    idle(cast, &names).await?;
    cast.ask("converge", &names, &["--reason", "the rehearsal"])
        .await?;
    let serving = cast
        .watch
        .until(client, "all nodes in service", BOOTS, async |fleet| {
            well(fleet, &names)?;
            let left = client
                .list_operations(&[("limit", "50")])
                .await?
                .items
                .iter()
                .any(|operation| !operation.done);
            Ok(!left && names.iter().all(|name| state(fleet, name) == "in_service"))
        });
    serving.await?;
    cast.watch.say("a sweep finds nothing on any of them");
    let options = [
        "--reason",
        "before the rehearsal",
        "--wait",
        "--timeout",
        "5m",
    ];
    cast.ask("sweep", &names, &options).await?;
    for name in names {
        ensure!(
            cast.recoveries(name).await?.is_empty(),
            "{name} failed before anything was done to it"
        );
        cast.serves(name).await?;
    }
    Ok(())
}

async fn adopt(cast: &Cast<'_>, veteran: &Veteran<'_>) -> anyhow::Result<()> {
    let credential = format!("admin-{}", veteran.name);
    common::adopting_credential(cast.programs.client(), &credential, &veteran.admin_key()?).await?;
    let key = veteran.fingerprint().await?;
    let asked = [
        "node",
        "adopt",
        &veteran.name,
        "--pool",
        POOL,
        "--credential",
        &credential,
        "--host-key",
        &key,
    ];
    let options = [
        "--reason",
        "it served before Muster",
        "--wait",
        "--timeout",
        "5m",
    ];
    cast.programs.cli(&asked, &options).await.map(drop)
}

/// Waits until no operation is running and every node has a gate run. Each adoption starts a first
/// sweep, which must end before the next request.
async fn idle(cast: &mut Cast<'_>, names: &[&str]) -> anyhow::Result<()> {
    let client = cast.programs.client();
    let idle = cast
        .watch
        .until(client, "the first sweeps to end", BOOTS, async |fleet| {
            well(fleet, names)?;
            let swept = async |name: &&str| {
                Ok::<_, anyhow::Error>(!client.node_gate_runs(name).await?.items.is_empty())
            };
            let swept = try_join_all(names.iter().map(swept)).await?;
            let busy = client
                .list_operations(&[("limit", "50")])
                .await?
                .items
                .iter()
                .any(|operation| !operation.done);
            Ok(!busy
                && swept.iter().all(|one| *one)
                && names.iter().all(|name| state(fleet, name) == "in_service"))
        });
    idle.await
}

fn machines(many: usize) -> String {
    if many == 1 {
        "one machine".into()
    } else {
        format!("{many} machines")
    }
}

fn well(fleet: &Fleet, names: &[&str]) -> anyhow::Result<()> {
    let lost = names
        .iter()
        .find(|name| matches!(state(fleet, name), "failed" | "quarantined"));
    ensure!(lost.is_none(), "{lost:?} did not get into service");
    Ok(())
}

async fn unprotect(client: &Client, node: &str) -> anyhow::Result<()> {
    let patch = json!({ "spec": { "protected": false } });
    let answer = client
        .patch_value(&["nodes", node], &[], &patch, Precondition::None)
        .await;
    answer
        .map(drop)
        .with_context(|| format!("clear the protection of {node}"))
}
