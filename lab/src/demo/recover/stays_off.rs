//! A machine stays powered off after its reboot. The reboot rung reads the power state from the BMC
//! and powers the machine on. The gates then decide about the recovery.

use std::time::Instant;

use anyhow::ensure;

use super::super::cast::DEGRADED;
use super::cast::{Cast, SMART, rungs};
use super::table::Table;
use crate::machine::oracle::{Cause, Happening};
use crate::plan::small_disk;

const NODE: &str = "n4";
const NUMBER: u8 = 4;

pub(super) async fn tell(cast: &mut Cast<'_>, table: &mut Table) -> anyhow::Result<()> {
    let began = Instant::now();
    cast.watch.say(&format!(
        "5. the disk of {NODE} raises its warning until the next boot, and its next reboot leaves it off"
    ));
    let (boot, entries) = (
        cast.veteran(NODE)?.boot_id().await?,
        cast.machine(NODE)?.oracle()?.len(),
    );
    cast.machine(NODE)?
        .set_nvme_warning(&small_disk(NUMBER), DEGRADED)
        .await?;
    cast.machine(NODE)?.stay_off_once().await;
    let recovery = cast.recovery_of(NODE).await?;
    ensure!(
        recovery.signature == SMART,
        "it failed otherwise: {recovery:?}"
    );
    ensure!(
        rungs(&recovery) == ["collect done", "restart_services done", "reboot done"],
        "other rungs: {recovery:?}"
    );
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
    let once = matches!(acts.as_slice(), [off, on]
        if (&off.what, &off.cause) == (&Happening::PowerOff, &Cause::Guest)
            && matches!((&on.what, &on.cause), (Happening::PowerOn { .. }, Cause::Bmc { .. })));
    ensure!(
        once,
        "it was to go off by itself and to be started once: {acts:?}"
    );
    table.note(NODE, "off instead of rebooted", &recovery, began);
    Ok(())
}
