//! Five of six nodes fail the same gate at once. The cause is the fleet, not the nodes. At most two
//! nodes may be taken out, and the breaker opens. No rung runs on any node until a person resets
//! the breaker.

use std::time::Instant;

use anyhow::{Context, ensure};

use super::super::cast::{DEGRADED, state};
use super::cast::{Cast, RECOVERY, SMART};
use super::table::Table;
use crate::plan::small_disk;

const FAILING: [&str; 5] = ["n1", "n2", "n3", "n4", "n5"];
const WELL: &str = "n6";
/// Most nodes that may be taken out by the same kind of failure, of six nodes in service.
const MOST: usize = 2;

pub(super) async fn tell(cast: &mut Cast<'_>, table: &mut Table) -> anyhow::Result<()> {
    let began = Instant::now();
    cast.watch
        .say("2. the disks of five of six raise their warning, and all six are swept at once");
    let boots = cast
        .nodes()
        .iter()
        .map(|node| Ok(cast.machine(node)?.boots()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for node in FAILING {
        warn(cast, node, DEGRADED).await?;
    }
    let nodes = cast.nodes();
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    cast.ask("sweep", &names, &["--reason", "the rehearsal"])
        .await?;
    let held = stopped(cast).await?;
    ensure!(
        held.len() <= MOST && !held.is_empty(),
        "{held:?} were taken out; at most {MOST} may be"
    );
    for name in &names {
        match held.iter().any(|held| held == name) {
            true => cast.is_out_of_slurm(name).await?,
            false => cast.serves(name).await?,
        }
    }
    ensure!(cast.recoveries(WELL).await?.is_empty(), "{WELL} is well");
    let after = cast
        .nodes()
        .iter()
        .map(|node| Ok(cast.machine(node)?.boots()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(
        after == boots,
        "something was tried on them: {boots:?} boots before, {after:?} after"
    );
    let told = cast.programs.cli(&["breaker", "list"], &[]).await?;
    ensure!(
        told.contains(SMART) && told.contains("open"),
        "the breaker is not told:\n{told}"
    );
    println!("{}", told.trim_end());
    let recovery = cast.recoveries(&held[0]).await?.remove(0);
    back(cast, &held).await?;
    table.note(
        &format!("5 of 6, {} taken out", held.len()),
        "five disks' warnings at once",
        &recovery,
        began,
    );
    Ok(())
}

async fn warn(cast: &Cast<'_>, node: &str, warning: u8) -> anyhow::Result<()> {
    let number: u8 = node.trim_start_matches('n').parse()?;
    Ok(cast
        .machine(node)?
        .set_nvme_warning(&small_disk(number), warning)
        .await?)
}

/// Waits until the breaker is open, every sweep has ended and all nodes are settled. Returns the
/// nodes taken out of service.
async fn stopped(cast: &mut Cast<'_>) -> anyhow::Result<Vec<String>> {
    let client = cast.programs.client();
    let mut out = Vec::new();
    let rests = cast.watch.until(
        client,
        "the breaker to stop the ladders",
        RECOVERY,
        async |fleet| {
            let page = client
                .get_value(&["breakers"], &[("filter", "state=open")])
                .await?;
            let open = page["items"]
                .as_array()
                .is_some_and(|open| open.iter().any(|one| one["signature"] == SMART));
            let busy = client
                .list_operations(&[("limit", "50")])
                .await?
                .items
                .iter()
                .any(|operation| !operation.done);
            let of = |wanted: &str| {
                fleet
                    .keys()
                    .filter(|name| state(fleet, name) == wanted)
                    .cloned()
                    .collect::<Vec<_>>()
            };
            out = of("quarantined");
            Ok(open && !busy && out.len() + of("in_service").len() == fleet.len())
        },
    );
    rests.await?;
    Ok(out)
}

/// Clears the faults and resets the breaker as a person does. Then requests a recovery of the nodes
/// taken out, and checks that they serve.
async fn back(cast: &mut Cast<'_>, held: &[String]) -> anyhow::Result<()> {
    for node in FAILING {
        warn(cast, node, 0).await?;
    }
    let open = cast
        .breakers()
        .await?
        .into_iter()
        .find(|breaker| breaker.signature == SMART && breaker.state == "open");
    let id = open.context("no breaker is open")?.id.to_string();
    cast.programs.cli(&["breaker", "reset", &id], &[]).await?;
    let names: Vec<&str> = held.iter().map(String::as_str).collect();
    cast.ask(
        "recover",
        &names,
        &[
            "--reason",
            "their disks were mended",
            "--wait",
            "--timeout",
            "10m",
        ],
    )
    .await?;
    for name in names {
        cast.serves(name).await?;
    }
    Ok(())
}
