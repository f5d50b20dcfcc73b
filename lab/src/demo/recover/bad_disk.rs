//! A disk fails in service, and no boot clears the fault. The recovery climbs all rungs of the
//! ladder up to `rma`. Then the RMA bundle for the manufacturer is saved and checked.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use muster_api::nodes::NodeSpec;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use super::super::cast::DEGRADED;
use super::cast::{Cast, SMART, rungs};
use super::table::Table;
use crate::machine::Machine;
use crate::machine::oracle::Happening;
use crate::plan::small_disk;

const NODE: &str = "n2";
const NUMBER: u8 = 2;
/// Longest time until a just started guest accepts the warning.
const RAISED_WITHIN: Duration = Duration::from_secs(20);

pub(super) async fn tell(cast: &mut Cast<'_>, table: &mut Table) -> anyhow::Result<()> {
    let began = Instant::now();
    cast.watch.say(&format!(
        "3. the disk of {NODE} raises its warning, and again after each boot"
    ));
    let machine = std::sync::Arc::clone(cast.machine(NODE)?);
    let entries = machine.oracle()?.len();
    let stays_bad = stays_bad(&machine).await?;
    let recovery = cast.recovery_of(NODE).await?;
    ensure!(
        recovery.signature == SMART,
        "it failed otherwise: {recovery:?}"
    );
    let climbed = [
        "collect done",
        "restart_services done",
        "reboot done",
        "power_cycle done",
        "rma done",
    ];
    ensure!(rungs(&recovery) == climbed, "other rungs: {recovery:?}");
    ensure!(
        recovery.ended.as_deref() == Some("spent"),
        "it ended otherwise: {recovery:?}"
    );
    let node = cast.programs.client().get::<NodeSpec>(NODE).await?.status;
    let reason = node.reason.unwrap_or_default();
    ensure!(
        node.state == "quarantined" && reason.contains("disk.smart"),
        "{NODE} is {}: {reason}",
        node.state
    );
    cast.is_out_of_slurm(NODE).await?;
    let acts = cast.power_acts(NODE, entries)?;
    let is =
        |wanted: fn(&Happening) -> bool| acts.iter().filter(|entry| wanted(&entry.what)).count();
    let (reboots, ons) = (
        is(|what| matches!(what, Happening::Reboot { .. })),
        is(|what| matches!(what, Happening::PowerOn { .. })),
    );
    ensure!(
        (reboots, ons) == (1, 1),
        "one reboot and one power cycle were due: {acts:?}"
    );
    bundle(cast).await?;
    drop(stays_bad);
    table.note(
        NODE,
        "the disk's warning, again after each boot",
        &recovery,
        began,
    );
    Ok(())
}

/// Raises the warning now and after each boot, because the emulated disk forgets a warning at boot.
/// A real disk keeps its state. The returned handle ends the task when dropped.
#[expect(
    clippy::disallowed_methods,
    reason = "the caller owns the handle, which ends the task when it is dropped"
)]
async fn stays_bad(machine: &std::sync::Arc<Machine>) -> anyhow::Result<AbortOnDropHandle<()>> {
    let (machine, disk) = (std::sync::Arc::clone(machine), small_disk(NUMBER));
    let mut told = machine.subscribe();
    machine.set_nvme_warning(&disk, DEGRADED).await?;
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok(entry) = told.recv().await {
            if !matches!(
                entry.what,
                Happening::PowerOn { .. } | Happening::Reboot { .. }
            ) {
                continue;
            }
            let asked = Instant::now();
            while machine.set_nvme_warning(&disk, DEGRADED).await.is_err()
                && asked.elapsed() < RAISED_WITHIN
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    })))
}

/// Saves the RMA bundle for the manufacturer as a user does, and opens the archive with tar. The
/// bundle must contain the disk, the firmware, the failed measurements and the attempted rungs.
async fn bundle(cast: &Cast<'_>) -> anyhow::Result<()> {
    let (saved, folder) = (cast.dir.join("rma.tar.zst"), cast.dir.join("rma"));
    std::fs::create_dir_all(&folder)?;
    cast.ask("rma", &[NODE], &["--out", &saved.display().to_string()])
        .await?;
    let mut tar = tokio::process::Command::new("tar");
    tar.arg("--zstd")
        .arg("-xf")
        .arg(&saved)
        .arg("-C")
        .arg(&folder)
        .kill_on_drop(true);
    ensure!(
        tar.status().await.context("start tar")?.success(),
        "tar does not open {}",
        saved.display()
    );
    let read = |name: &str| {
        std::fs::read_to_string(folder.join(name)).with_context(|| format!("{name} of the bundle"))
    };
    let holds = |name: &str, word: &str| -> anyhow::Result<()> {
        let text = read(name)?;
        ensure!(
            text.contains(word),
            "{name} of the bundle says nothing of {word}: {text}"
        );
        Ok(())
    };
    holds("components.json", &small_disk(NUMBER))?;
    holds("recoveries.json", "\"spent\"")?;
    holds("recoveries.json", "power_cycle")?;
    holds("timeline.txt", "recovery.started")?;
    let bmc: Value = serde_json::from_str(&read("bmc.json")?)?;
    ensure!(
        bmc["firmware"]
            .as_array()
            .is_some_and(|parts| !parts.is_empty()),
        "bmc.json knows no firmware: {bmc}"
    );
    let runs =
        std::fs::read_dir(folder.join("gate-runs")).context("the bundle has no gate runs")?;
    let failed = runs
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let failed = failed
        .filter(|text| text.contains("critical_warning"))
        .count();
    ensure!(
        failed >= 4,
        "{failed} runs name the warning; the sweep and three rungs saw it"
    );
    cast.watch
        .say(&format!("the bundle for its maker is {}", saved.display()));
    Ok(())
}
