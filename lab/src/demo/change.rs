//! A change of a pool in service: a rollout halts by itself at a failing gate, and the changed node
//! goes back.

use anyhow::{Context, ensure};
use muster_api::client::{Client, Precondition};
use muster_api::rollouts::Rollout;
use muster_core::rollout::Mark;
use serde_json::{Value, json};
use tokio::process::Child;

use super::cast::{BAD_DISK, DEGRADED, FAILING, GOOD, LONG, state};
use super::declare::put;
use super::jobs::start_job;
use super::programs::Programs;
use super::rollouts::{Ending, Rollouts, Target, count, list_failed};
use super::watch::Watch;
use super::{DemoOptions, hold};
use crate::Rack;
use crate::slurm::Slurm;

const SHORT_SUITE: &str = include_str!("recover/suite.toml");
const POOL: &str = "cpu";
const STACK: &str = "cpu-slurm";
/// The kernel setting of the stack: its name, its file, the value of the first revision, and the new
/// value.
const SETTING: &str = "vm.swappiness";
const FILE: &str = "/proc/sys/vm/swappiness";
const FORMER: &str = "10";
const CHANGED: &str = "1";
/// The version of the stack with the new value.
const VERSION: &str = "2";
/// The failing gate.
const GATE: &str = "disk.smart";

/// Ends the warning of the failing node's disk, and requests the node's recovery from quarantine: gates
/// run again. From now on the pool has a suite of seconds, without loads and without a reboot.
pub(super) async fn recover(rack: &Rack, client: &Client) -> anyhow::Result<()> {
    let suite: Value = toml::from_str(SHORT_SUITE)?;
    let name = suite["name"].as_str().context("the suite has no name")?;
    put(client, "suites", name, suite.clone()).await?;
    let pool = json!({ "spec": { "suite": name } });
    client
        .patch_value(&["pools", POOL], &[], &pool, Precondition::None)
        .await?;
    let failing = &rack.slot(FAILING)?.machine;
    failing.set_nvme_warning(BAD_DISK, 0).await?;
    client
        .node_action(FAILING, "recover", Some("the disk was replaced"))
        .await?;
    Ok(())
}

/// Publishes a stack with another kernel setting. The canary changes after its job has ended. The
/// second node's disk raises its warning during the change, and the rollout halts. Then the canary
/// goes back, while server and agent are dead for a time.
pub(super) async fn run(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    programs: &Programs,
    watch: &Watch,
) -> anyhow::Result<()> {
    let rollouts = Rollouts {
        programs,
        watch,
        pool: POOL,
        order: json!(["idle_first"]),
        dir: options.dir.clone(),
    };
    let before = rollouts.newest_revision().await?;
    publish(programs.client()).await?;
    watch.say(&format!(
        "{SETTING} = {CHANGED} is published as a revision, and no node changes; a job of 30 s runs on {GOOD}"
    ));
    // With a time limit, the end is known, and the node is drained beside the job.
    let job = start_job(slurm, programs.client(), watch, "30", &["-t", "2"]).await?;
    halts(rack, &rollouts, job).await?;
    check_setting(slurm, CHANGED).await?;
    goes_back(rack, slurm, &rollouts, before).await
}

/// Publishes another version of the stack, with the same packages and another kernel setting.
async fn publish(client: &Client) -> anyhow::Result<()> {
    let change = json!({ "spec": { "version": VERSION, "sysctl": { SETTING: CHANGED } } });
    client
        .patch_value(&["stacks", STACK], &[], &change, Precondition::None)
        .await?;
    Ok(())
}

/// The canary is changed; the second node fails its gate; the rollout halts and says why.
async fn halts(rack: &Rack, rollouts: &Rollouts<'_>, mut job: Child) -> anyhow::Result<()> {
    let target = Target {
        canary: &[GOOD],
        allow: "in_place",
        revision: rollouts.newest_revision().await?,
    };
    let name = rollouts.start(target).await?;
    let failing = &rack.slot(FAILING)?.machine;
    let (mut waited, mut finished) = (false, None);
    let halted = rollouts.wait_beside(&name, Ending::Halted, async |fleet, rollout| {
        finished = finished.or(job.try_wait()?);
        match find_mark(rollout, GOOD) {
            Some(Mark::Waiting | Mark::Changing) if finished.is_none() => waited = true,
            Some(Mark::Validating | Mark::Done) => ensure!(
                finished.is_some_and(|status| status.success()),
                "{GOOD} was changed, and its job did not end by itself"
            ),
            _ => {}
        }
        // The warning follows the start of the change, and the emulated disk forgets it with a boot.
        match find_mark(rollout, FAILING) {
            Some(Mark::Changing | Mark::Validating) => {
                failing.set_nvme_warning(BAD_DISK, DEGRADED).await.ok();
            }
            Some(Mark::NotBegun | Mark::Waiting) => ensure!(
                !matches!(state(fleet, FAILING), "failed" | "quarantined"),
                "{FAILING} did not recover"
            ),
            _ => {}
        }
        Ok(())
    });
    let halted = halted.await?;
    ensure!(waited, "no look saw {GOOD} in the rollout beside its job");
    ensure!(
        count(&halted, Mark::Done) == 1,
        "the rollout halted before its canary was done"
    );
    let failed = list_failed(&halted);
    ensure!(failed == [FAILING], "{failed:?} failed, and not {FAILING}");
    let shown = rollouts
        .programs
        .cli(&["rollout", "show", &name], &[])
        .await?;
    println!("{}", shown.trim_end());
    ensure!(
        shown.contains(GATE),
        "the reason of the halt is not shown:\n{shown}"
    );
    Ok(())
}

/// The canary goes back to the revision before. The failed node stays in quarantine.
async fn goes_back(
    rack: &Rack,
    slurm: &Slurm,
    rollouts: &Rollouts<'_>,
    revision: i32,
) -> anyhow::Result<()> {
    rollouts
        .watch
        .say(&format!("{GOOD} goes back; {FAILING} is skipped"));
    let target = Target {
        canary: &[GOOD],
        allow: "in_place",
        revision,
    };
    let name = rollouts.start(target).await?;
    let skip = ["rollout", "skip", &name, FAILING];
    let why = ["--reason", "its disk fails"];
    rollouts.programs.cli(&skip, &why).await?;
    let client = rollouts.programs.client();
    let begun = rollouts
        .watch
        .until(client, "the way back to begin", LONG, async |_| {
            // The server may give no answer for a moment.
            let Ok(rollout) = client.rollout(&name).await else {
                return Ok(false);
            };
            Ok(count(&rollout, Mark::NotBegun) + count(&rollout, Mark::Waiting) == 0)
        });
    begun.await?;
    hold::boots_alone(rack, rollouts.programs, rollouts.watch).await?;
    let back = rollouts.wait_beside(&name, Ending::Done, async |fleet, _| {
        let rests = state(fleet, FAILING);
        ensure!(rests == "quarantined", "{FAILING} is {rests}");
        Ok(())
    });
    back.await?;
    check_setting(slurm, FORMER).await
}

/// Returns the mark of a node.
fn find_mark(rollout: &Rollout, name: &str) -> Option<Mark> {
    let mut nodes = rollout.nodes.iter().flatten();
    nodes.find(|node| node.node == name).map(|node| node.mark)
}

/// Reads the kernel setting on the canary by a job, so the node is also in Slurm.
async fn check_setting(slurm: &Slurm, expected: &str) -> anyhow::Result<()> {
    let found = slurm
        .srun(&["-p", "gpu", "-D", "/", "-w", GOOD, "cat", FILE])
        .await?;
    ensure!(
        found.trim() == expected,
        "{SETTING} of {GOOD} is {found}, and not {expected}"
    );
    Ok(())
}
