//! A service of the stack is dead. The sweep detects the failure, the node is drained, and converge
//! starts the service again. No machine is rebooted.

use std::time::Instant;

use anyhow::ensure;

use super::cast::{Cast, rungs};
use super::table::Table;

const NODE: &str = "n1";
const SERVICE: &str = "munge";

pub(super) async fn tell(cast: &mut Cast<'_>, table: &mut Table) -> anyhow::Result<()> {
    let began = Instant::now();
    cast.watch
        .say(&format!("1. {SERVICE} is stopped on {NODE}"));
    let (boot, entries) = (
        cast.veteran(NODE)?.boot_id().await?,
        cast.machine(NODE)?.oracle()?.len(),
    );
    cast.veteran(NODE)?
        .run(&["systemctl", "stop", SERVICE])
        .await?;
    let recovery = cast.recovery_of(NODE).await?;
    ensure!(
        recovery.signature == "gate:software.services",
        "it failed otherwise: {recovery:?}"
    );
    ensure!(
        rungs(&recovery) == ["collect done", "restart_services done"],
        "other rungs: {recovery:?}"
    );
    ensure!(
        recovery.ended.as_deref() == Some("recovered"),
        "it did not help: {recovery:?}"
    );
    cast.serves(NODE).await?;
    ensure!(
        cast.veteran(NODE)?.boot_id().await? == boot,
        "{NODE} was rebooted"
    );
    let acts = cast.power_acts(NODE, entries)?;
    ensure!(acts.is_empty(), "its power was touched: {acts:?}");
    let runs = cast
        .veteran(NODE)?
        .run(&["systemctl", "is-active", SERVICE])
        .await?;
    ensure!(runs.trim() == "active", "{SERVICE} is {runs}");
    table.note(NODE, &format!("{SERVICE} stopped"), &recovery, began);
    Ok(())
}
