//! From a powered-off machine to a node in service: inspected, imaged with Debian 13, converged to
//! the stack with driver 550, gated, and admitted to Slurm without a GPU.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use muster_api::claims::{ClaimSpec, CreateClaim};
use muster_api::gate_runs::GateRun;
use muster_core::gates::Verdict;

use super::super::artifacts::toml_as_json;
use super::super::cast::{LONG, state};
use super::super::report::print_gate;
use super::history;
use super::scene::{NODE, POOL, Scene, check_well};

/// Time limit from the claim to the service, on an emulated processor: two hundred megabytes are
/// written as image, three hundred as packages, and the machine boots five times.
const SERVICE: Duration = Duration::from_secs(90 * 60);
/// Gates skipped in this run, because no word of the profile names the signer, and no module is
/// built on the node.
const SKIPPED: [&str; 2] = ["software.module_signer", "software.dkms"];

/// Brings the machine into service, and checks packages, gates and Slurm. Returns the number of the
/// pool's revision.
pub(super) async fn enter_service(scene: &Scene<'_>) -> anyhow::Result<i32> {
    let (client, watch) = (scene.client(), &scene.watch);
    watch.say("1. a powered-off machine is accepted, then claimed for the pool");
    client.node_action(NODE, "accept", Some("the run")).await?;
    let inspected = watch.until(client, "the inspection", LONG, async |fleet| {
        check_well(fleet)?;
        Ok(state(fleet, NODE) == "available")
    });
    inspected.await?;
    let claim = CreateClaim {
        name: Some(format!("claim-{NODE}").parse()?),
        spec: ClaimSpec::new(POOL, Some(NODE.into()), None),
    };
    client.create_claim(&claim).await?;
    let serves = watch.until(client, "the service", SERVICE, async |fleet| {
        check_well(fleet)?;
        Ok(state(fleet, NODE) == "in_service")
    });
    serves.await?;
    scene.admin.learn_host_keys().await?;
    scene
        .first
        .check_installed(&scene.admin, &scene.other)
        .await?;
    check_gates(scene).await?;
    check_gres(scene).await?;
    scene.check_service().await?;
    let transactions = history::count_moves(&scene.admin).await?;
    ensure!(
        transactions == 1,
        "the driver was installed in {transactions} transactions"
    );
    let revisions = client.pool_revisions(POOL).await?.items;
    let first = revisions.iter().map(|revision| revision.number).max();
    first.context("the pool has no revision")
}

/// Prints the gates, and checks each gate of the suite: passed, or one of [`SKIPPED`].
async fn check_gates(scene: &Scene<'_>) -> anyhow::Result<()> {
    let suite = toml_as_json(&scene.options.artifacts.suite)?;
    let word = |member: &str| {
        suite[member]
            .as_str()
            .context("the suite has no name or version")
    };
    let name = format!("{} {}", word("name")?, word("version")?);
    let runs: Vec<GateRun> = scene.client().node_gate_runs(NODE).await?.items;
    let mut verdicts: BTreeMap<&str, Vec<Verdict>> = BTreeMap::new();
    for run in runs.iter().rev() {
        println!("--- {NODE}: gates of {}: {}", run.suite, run.verdict);
        run.results.iter().for_each(print_gate);
        ensure!(
            run.suite == name && run.verdict == "pass",
            "a run of {} is {}",
            run.suite,
            run.verdict
        );
        for result in &run.results {
            verdicts
                .entry(&result.gate)
                .or_default()
                .push(result.verdict);
        }
    }
    let gates = suite["gates"]
        .as_array()
        .context("the suite has no gates")?;
    for gate in gates.iter().filter_map(|gate| gate["id"].as_str()) {
        let expected = match SKIPPED.contains(&gate) {
            true => Verdict::Skipped,
            false => Verdict::Pass,
        };
        let found = verdicts.get(gate).map(Vec::as_slice).unwrap_or_default();
        let is_expected = !found.is_empty() && found.iter().all(|verdict| *verdict == expected);
        ensure!(is_expected, "{gate} is {found:?}, and not {expected:?}");
    }
    Ok(())
}

/// Checks that Slurm knows the node without a generic resource, in the written files and in the
/// controller.
async fn check_gres(scene: &Scene<'_>) -> anyhow::Result<()> {
    let shown = scene.slurm.scontrol(&["show", "node", NODE]).await?;
    ensure!(
        shown.contains("Gres=(null)"),
        "Slurm has a generic resource of {NODE}:\n{shown}"
    );
    let path = scene.slurm.include_dir.join("muster-gres.conf");
    let written =
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let declared = written.lines().find(|line| !line.starts_with('#'));
    ensure!(declared.is_none(), "{} has {declared:?}", path.display());
    let version = shown
        .split_whitespace()
        .find_map(|word| word.strip_prefix("Version="));
    scene.watch.say(&format!(
        "{NODE} is in Slurm without a GPU; its slurmd is {}",
        version.unwrap_or("of an unknown version")
    ));
    Ok(())
}
