//! A machine hangs with its power on: the CPUs are stopped, so no login succeeds and the node
//! counts as unreachable. Rungs requiring an answer from the machine are skipped. The power cycle
//! by the BMC recovers the node.

use std::time::Instant;

use anyhow::ensure;

use super::cast::{Cast, rungs};
use super::table::Table;
use crate::machine::launch::GuestAct;
use crate::machine::oracle::{Cause, Happening};

const NODE: &str = "n3";

pub(super) async fn tell(cast: &mut Cast<'_>, table: &mut Table) -> anyhow::Result<()> {
    let began = Instant::now();
    cast.watch.say(&format!(
        "4. {NODE} stands still: its CPUs are stopped, its power is on"
    ));
    let (boot, entries) = (
        cast.veteran(NODE)?.boot_id().await?,
        cast.machine(NODE)?.oracle()?.len(),
    );
    cast.machine(NODE)?.inflict(GuestAct::Wedge).await?;
    let recovery = cast.recovery_of(NODE).await?;
    ensure!(
        recovery.signature == "unreachable",
        "it failed otherwise: {recovery:?}"
    );
    let climbed = [
        "collect skipped",
        "restart_services skipped",
        "reboot skipped",
        "power_cycle done",
    ];
    ensure!(rungs(&recovery) == climbed, "other rungs: {recovery:?}");
    ensure!(
        recovery.ended.as_deref() == Some("recovered"),
        "it did not help: {recovery:?}"
    );
    cast.serves(NODE).await?;
    ensure!(
        cast.veteran(NODE)?.boot_id().await? != boot,
        "{NODE} was not booted"
    );
    let acts = cast.power_acts(NODE, entries)?;
    let by_bmc = acts
        .iter()
        .all(|entry| matches!(entry.cause, Cause::Bmc { .. }));
    let cycled = matches!(acts.as_slice(), [off, on]
        if off.what == Happening::PowerOff && matches!(on.what, Happening::PowerOn { .. }));
    ensure!(
        by_bmc && cycled,
        "its BMC was to cut its power once and to give it back: {acts:?}"
    );
    table.note(NODE, "its CPUs stopped", &recovery, began);
    Ok(())
}
