//! Adopts a machine installed without Muster while a Slurm job runs on the machine. The machine is neither
//! rebooted nor wiped, and the job ends by itself with complete output.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use muster_api::client::Client;
use muster_api::nodes::NodeSpec;
use tokio::process::Child;

use super::cast::{SHORT, state};
use super::programs::Programs;
use super::veteran::Veteran;
use super::watch::Watch;
use super::{DemoOptions, declare};
use crate::Rack;
use crate::machine::oracle::{Cause, Entry, Happening};
use crate::plan::{RackPlan, VETERAN, VETERAN_DISK};
use crate::slurm::{OTHERS_PARTITION, Slurm};

const CREDENTIAL: &str = "veteran-admin";

/// Builds the machine's disk, lists the machine in Slurm and switches the machine on. The boot and
/// [`Veteran::join`] take minutes of one core when emulated, so other acts can run meanwhile.
pub(super) async fn switch_on<'rack>(
    options: &DemoOptions,
    rack: &'rack Rack,
    slurm: &Slurm,
    plan: &RackPlan,
    watch: &Watch,
) -> anyhow::Result<Veteran<'rack>> {
    watch.say(&format!("{VETERAN}, which somebody else installed, is switched on and joins Slurm by its admin's hand"));
    let index = plan
        .machines
        .iter()
        .position(|machine| machine.name.as_str() == VETERAN);
    let index = index.context("the plan has no veteran")?;
    let veteran = Veteran::new(options, rack, index, VETERAN, VETERAN_DISK).await?;
    veteran.build(options).await?;
    slurm.list_others(VETERAN, veteran.address).await?;
    Ok(veteran)
}

/// Starts a job on the joined machine, adopts the machine, and waits until the job ended.
pub(super) async fn tell(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    programs: &Programs,
    veteran: &Veteran<'_>,
    watch: &Watch,
) -> anyhow::Result<()> {
    let client = programs.client();
    let up = watch.until(client, "Slurm to see the veteran", SHORT, async |_| {
        Ok(slurm
            .run("sinfo", &["-h", "-n", VETERAN, "-o", "%T"])
            .await?
            .trim()
            == "idle")
    });
    up.await?;
    let said = options.dir.join("veterans/job.out");
    let mut job = start_job(slurm, &said)?;
    let running = watch.until(client, "the job to run", SHORT, async |_| {
        Ok(!jobs(slurm).await?.is_empty())
    });
    running.await?;
    let (boot, number) = (veteran.boot_id().await?, jobs(slurm).await?);
    watch.say(&format!(
        "job {number} counts the seconds on {VETERAN}, boot {boot}"
    ));
    adopt(client, programs, veteran, watch).await?;
    ensure!(
        jobs(slurm).await? == number,
        "job {number} did not live through the adoption"
    );
    watch.say(&format!(
        "{VETERAN} is in service, and job {number} runs on until it has counted enough"
    ));
    veteran.run(&["touch", "/run/enough"]).await?;
    let ended = watch.until(client, "the job to end", SHORT, async |fleet| {
        ensure!(
            state(fleet, VETERAN) == "in_service",
            "{VETERAN} left service"
        );
        Ok(job.try_wait()?.is_some())
    });
    ended.await?;
    ensure!(job.wait().await?.success(), "the job did not end well");
    let counted = whole(&said)?;
    ensure!(veteran.boot_id().await? == boot, "{VETERAN} was rebooted");
    untouched(rack, client, veteran).await?;
    watch
        .say(&format!("job {number} ended by itself: it counted to {counted}, none missing; the boot is still {boot}"));
    Ok(())
}

fn start_job(slurm: &Slurm, said: &Path) -> anyhow::Result<Child> {
    let file = std::fs::File::create(said).with_context(|| format!("make {}", said.display()))?;
    let mut srun = slurm.command("srun");
    srun.args([
        "-p",
        OTHERS_PARTITION,
        "-D",
        "/",
        "-w",
        VETERAN,
        "/usr/local/bin/count",
    ]);
    srun.stdout(file)
        .stderr(Stdio::inherit())
        .spawn()
        .context("start srun")
}

/// Returns the numbers of the jobs running on the machine.
async fn jobs(slurm: &Slurm) -> anyhow::Result<String> {
    Ok(slurm
        .run("squeue", &["-h", "-w", VETERAN, "-t", "R", "-o", "%i"])
        .await?
        .trim()
        .to_owned())
}

/// Adopts the machine with the commands of a user: a temporary credential, the plan, the adoption.
async fn adopt(
    client: &Client,
    programs: &Programs,
    veteran: &Veteran<'_>,
    watch: &Watch,
) -> anyhow::Result<()> {
    declare::adopting_credential(client, CREDENTIAL, &veteran.admin_key()?).await?;
    let key = veteran.fingerprint().await?;
    let asked = [
        "node",
        "adopt",
        VETERAN,
        "--pool",
        "cpu",
        "--credential",
        CREDENTIAL,
        "--host-key",
        &key,
    ];
    let plan = programs.cli(&asked, &["--plan"]).await?;
    ensure!(
        plan.contains("/root/.ssh/authorized_keys") && !plan.contains("blocked"),
        "not a plan to adopt:\n{plan}"
    );
    println!("{}", plan.trim_end());
    programs
        .cli(
            &asked,
            &[
                "--reason",
                "it served before Muster",
                "--wait",
                "--timeout",
                "10m",
            ],
        )
        .await?;
    let adopted = watch.until(client, "the adoption", SHORT, async |fleet| {
        Ok(state(fleet, VETERAN) == "in_service")
    });
    adopted.await
}

/// Returns the last number printed by the job, after checking that no number is missing and that the
/// job ended by itself.
fn whole(said: &Path) -> anyhow::Result<usize> {
    let text = std::fs::read_to_string(said).with_context(|| format!("read {}", said.display()))?;
    let mut lines: Vec<&str> = text.lines().collect();
    ensure!(
        lines.pop() == Some("enough"),
        "the job did not end of its own accord: {text:?}"
    );
    let counted: Vec<usize> = lines.iter().filter_map(|line| line.parse().ok()).collect();
    ensure!(
        counted == (1..=lines.len()).collect::<Vec<_>>(),
        "the job's output is not whole: {text:?}"
    );
    Ok(counted.len())
}

/// Checks the machine, the lab's log and the API: a single boot by hand, unchanged files, and the
/// additions named by the plan.
async fn untouched(rack: &Rack, client: &Client, veteran: &Veteran<'_>) -> anyhow::Result<()> {
    let machine = &rack.slot(VETERAN)?.machine;
    let done: Vec<Entry> = machine
        .oracle()?
        .into_iter()
        .filter(|entry| entry.cause != Cause::Button)
        .collect();
    ensure!(
        machine.boots() == 1 && done.is_empty(),
        "{VETERAN} was not let alone: {done:?}"
    );
    ensure!(
        machine
            .oracle()?
            .iter()
            .any(|entry| matches!(entry.what, Happening::PowerOn { .. })),
        "it never ran"
    );
    veteran
        .run(&[
            "test",
            "-e",
            "/root/kept",
            "-a",
            "-s",
            "/etc/muster/marker.json",
        ])
        .await?;
    let trusted = veteran.run(&["cat", "/root/.ssh/authorized_keys"]).await?;
    ensure!(
        trusted.lines().count() == 2 && trusted.contains("muster-adopted"),
        "authorized_keys: {trusted:?}"
    );
    let node = client.get::<NodeSpec>(VETERAN).await?;
    ensure!(
        node.spec.protected && node.status.claim.is_some(),
        "{VETERAN} is not adopted: {:?}",
        node.status
    );
    Ok(())
}
