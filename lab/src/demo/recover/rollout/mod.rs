//! Rollouts to a pool in service, one node out at a time, while jobs run: in waves with kills and an
//! upgrade of the server and the agent; halted by a failing gate; back again; beside the drain of a
//! person and a dead machine; with firmware in the same visit; and a reinstall of a single node.

mod jobs; // Jobs on the machines, and an observer
mod moves; // Checks of a waiting rollout
mod reinstall; // A new image on a single node
mod train; // Packages, a kernel argument, firmware and a BIOS setting in one visit

use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use muster_api::client::Precondition;
use muster_core::rollout::Mark;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::jobs::{keep_running, observe};
use super::super::DemoOptions;
use super::super::cast::{DEGRADED, SHORT, state};
use super::super::rollouts::{Ending, Rollouts, Target, count, list_failed};
use super::cast::Cast;
use super::declare::POOL;
use super::driver::{self, Draft, LockedStack, STACK, publish};
use super::packages::check_versions;
use crate::machine::oracle::Cause;
use crate::parts::Part;
use crate::plan::small_disk;

/// Most nodes of the pool that may be out of service.
const MOST_OUT: usize = 1;
/// The kernel argument of the first revision, without an effect on jobs.
const ARGUMENT: &str = "audit=0";
/// Kills during the first rollout: done nodes at that time, and the part.
const KILLS: [(u32, Part); 4] = [
    (0, Part::Server),
    (1, Part::Agent),
    (2, Part::Server),
    (3, Part::Agent),
];
/// The parts of another version before their first kill.
const UPGRADED: [Part; 2] = [Part::Server, Part::Agent];
/// The node with the failing gate.
const WARNED: (&str, u8) = ("n2", 2);
/// Label of all nodes but the last, which is taken last.
const TURN: &str = "turn";
/// The reason of the person's drain.
const FAN: &str = "fan of the second PSU";

/// Runs all rollouts, and prints the duration of each and the findings of the observer.
pub(super) async fn run(options: &DemoOptions, cast: &mut Cast<'_>) -> anyhow::Result<()> {
    let (work, setup) = (cast.dir.join("rollout"), cast.watch.elapsed());
    driver::build_repository(&work).await?;
    let with_argument = |version| Draft {
        kernel_args: &[ARGUMENT],
        ..Draft::of_version(version)
    };
    let first = driver::lock(options, cast, &work, with_argument("1.0")).await?;
    let second = driver::lock(options, cast, &work, with_argument("2.0")).await?;
    // Without a ladder, a failed gate leads into quarantine.
    let pool = json!({ "spec": { "max_unavailable": MOST_OUT, "health": null } });
    let client = cast.programs.client();
    client
        .patch_value(&["pools", POOL], &[], &pool, Precondition::None)
        .await?;
    let (drained, dead) = name_the_last(cast)?;
    let marked = json!({ "labels": { TURN: "first" } });
    for node in cast.nodes().iter().filter(|node| **node != dead) {
        client
            .patch_value(&["nodes", node], &[], &marked, Precondition::None)
            .await?;
    }
    let (slurm, enough) = (cast.slurm, CancellationToken::new());
    let story = async {
        let took = tell(options, cast, &work, [&first, &second], [&drained, &dead]).await;
        enough.cancel();
        took
    };
    let (took, short, long, observed) = tokio::try_join!(
        story,
        keep_running(slurm, 20, &dead, &enough),
        keep_running(slurm, 35, &dead, &enough),
        observe(slurm, client, MOST_OUT, &enough)
    )?;
    println!(
        "\n=== rollouts; the machines were in service after {} s",
        setup.as_secs()
    );
    took.iter().for_each(|line| println!("{line}"));
    println!(
        "{} jobs ran and ended by themselves; at most {} nodes were out in {} looks; the longest time without a running job: {} s",
        short + long,
        observed.most_out,
        observed.looks,
        observed.longest_pause_s
    );
    for node in cast.nodes() {
        cast.serves(&node).await?;
    }
    Ok(())
}

/// Returns the node drained by a person, and the node that dies before its turn.
fn name_the_last(cast: &Cast<'_>) -> anyhow::Result<(String, String)> {
    match cast.nodes().as_slice() {
        [.., drained, dead] => Ok((drained.clone(), dead.clone())),
        [_] | [] => anyhow::bail!("two machines are needed"),
    }
}

async fn tell(
    options: &DemoOptions,
    cast: &mut Cast<'_>,
    work: &Path,
    [first, second]: [&LockedStack; 2],
    [drained, dead]: [&str; 2],
) -> anyhow::Result<Vec<String>> {
    let (mut took, mut began) = (Vec::new(), Instant::now());
    let mut done = |what: &str| {
        took.push(format!("{what:<60} {:>4} s", began.elapsed().as_secs()));
        began = Instant::now();
    };
    in_waves(cast, work, first).await?;
    let upgrade = match &options.before {
        Some(_) => "all nodes in waves with a reboot each, four kills, an upgrade",
        None => "all nodes in waves with a reboot each, four kills",
    };
    done(upgrade);
    halted_by_a_gate(cast, work, second).await?;
    done("halted by itself at a failing gate");
    back_again(cast, work).await?;
    done("two nodes back to the revision before");
    gives_way(cast, work, drained, dead).await?;
    done("beside a person's drain and a dead machine");
    train::run(options, cast, work).await?;
    done("packages, kernel argument, firmware and BIOS in one visit");
    reinstall::run(options, cast, work).await?;
    done("one node reinstalled with another image");
    Ok(took)
}

/// Packages and a kernel argument reach all nodes, one node after the other. Server and agent are
/// killed twice each. In a run with a version before, the first kill upgrades each of them.
async fn in_waves(cast: &mut Cast<'_>, work: &Path, stack: &LockedStack) -> anyhow::Result<()> {
    for part in UPGRADED {
        cast.programs.check_version(part, false).await?;
    }
    cast.watch.say(&format!(
        "1. {} is published as a revision, and no node changes; the rollout takes one node at a time",
        stack.version
    ));
    publish(cast, STACK, stack).await?;
    let rollouts = list_turns(cast, work);
    let name = rollouts.start(Target::to(2)).await?;
    wait_under_kills(cast, &rollouts, &name).await?;
    for part in UPGRADED {
        cast.programs.check_version(part, true).await?;
    }
    for node in cast.nodes() {
        check_versions(cast, &node, stack.version).await?;
        let booted = cast.veteran(&node)?.run(&["cat", "/proc/cmdline"]).await?;
        ensure!(
            booted.split_whitespace().any(|word| word == ARGUMENT),
            "{node} runs without {ARGUMENT}: {booted}"
        );
    }
    Ok(())
}

/// Returns the rollouts of the pool. Nodes with a label come first.
fn list_turns<'cast>(cast: &'cast Cast<'_>, work: &Path) -> Rollouts<'cast> {
    Rollouts {
        programs: cast.programs,
        watch: &cast.watch,
        pool: POOL,
        order: json!([{ "label": TURN }, "idle_first"]),
        dir: work.to_owned(),
    }
}

/// Waits for the end of a rollout. Kills a part of Muster when the given number of nodes is done and a
/// further node changes.
async fn wait_under_kills(
    cast: &Cast<'_>,
    rollouts: &Rollouts<'_>,
    name: &str,
) -> anyhow::Result<()> {
    let mut kills = KILLS.iter();
    let mut next = kills.next();
    let ended = rollouts.wait_beside(name, Ending::Done, async |_, rollout| {
        let (done, changing) = (count(rollout, Mark::Done), count(rollout, Mark::Changing));
        if let Some((at, part)) = next.filter(|(at, _)| *at <= done && changing > 0) {
            cast.watch
                .say(&format!("kill -9 of the {part:?}, with {at} nodes done"));
            cast.programs.kill_and_restart(*part).await?;
            next = kills.next();
        }
        Ok(())
    });
    ended.await?;
    ensure!(next.is_none(), "{next:?} was not killed");
    Ok(())
}

/// A gate fails on one node after the canary. The rollout halts, and no further node changes.
async fn halted_by_a_gate(
    cast: &mut Cast<'_>,
    work: &Path,
    stack: &LockedStack,
) -> anyhow::Result<()> {
    let (warned, number) = WARNED;
    cast.watch.say(&format!(
        "2. {} is published, and the disk of {warned} raises its warning before its turn",
        stack.version
    ));
    cast.machine(warned)?
        .set_nvme_warning(&small_disk(number), DEGRADED)
        .await?;
    publish(cast, STACK, stack).await?;
    let first = Target {
        canary: &["n1"],
        ..Target::to(3)
    };
    let rollouts = list_turns(cast, work);
    let name = rollouts.start(first).await?;
    let halted = rollouts.wait(&name, Ending::Halted).await?;
    let failed = list_failed(&halted);
    ensure!(failed == [warned], "{failed:?} failed, and not {warned}");
    let nodes = halted.nodes.unwrap_or_default();
    let told = cast.programs.cli(&["rollout", "show", &name], &[]).await?;
    println!("{}", told.trim_end());
    ensure!(
        told.contains("disk.smart"),
        "the reason of the halt is not shown:\n{told}"
    );
    for node in nodes.iter().filter(|node| node.mark == Mark::NotBegun) {
        check_versions(cast, &node.node, "1.0").await?;
    }
    Ok(())
}

/// Both changed nodes go back to the revision before. The node with the failed gate is in quarantine:
/// the rollout takes it from there.
async fn back_again(cast: &mut Cast<'_>, work: &Path) -> anyhow::Result<()> {
    let (warned, number) = WARNED;
    let what = format!("{warned} in quarantine");
    let rests = cast
        .watch
        .until(cast.programs.client(), &what, SHORT, async |fleet| {
            Ok(state(fleet, warned) == "quarantined")
        });
    rests.await?;
    cast.watch.say(&format!(
        "3. the disk of {warned} is replaced, and the pool goes back"
    ));
    cast.machine(warned)?
        .set_nvme_warning(&small_disk(number), 0)
        .await?;
    let rollouts = list_turns(cast, work);
    let name = rollouts.start(Target::to(2)).await?;
    rollouts.wait(&name, Ending::Done).await?;
    for node in cast.nodes() {
        check_versions(cast, &node, "1.0").await?;
    }
    Ok(())
}

/// A node drained by a person and a dead machine count as out: the rollout waits for both.
async fn gives_way(
    cast: &mut Cast<'_>,
    work: &Path,
    drained: &str,
    dead: &str,
) -> anyhow::Result<()> {
    cast.watch.say(&format!(
        "4. a person drains {drained} in Slurm; the rollout waits for its end"
    ));
    let node = format!("nodename={drained}");
    let reason = format!("reason={FAN}");
    cast.slurm
        .scontrol(&["update", &node, "state=drain", &reason])
        .await?;
    moves::wait_for_out(cast, drained).await?;
    let rollouts = list_turns(cast, work);
    let name = rollouts.start(Target::to(3)).await?;
    moves::nothing_changes(cast, &name, drained).await?;
    let shown = cast.slurm.scontrol(&["show", "node", drained]).await?;
    ensure!(shown.contains(FAN), "the person's drain is gone:\n{shown}");
    cast.watch
        .say(&format!("5. {dead} loses its power before its turn"));
    let machine = std::sync::Arc::clone(cast.machine(dead)?);
    machine.power_off(Cause::Lab).await?;
    moves::wait_for_out(cast, dead).await?;
    cast.slurm
        .scontrol(&["update", &node, "state=resume"])
        .await?;
    moves::nothing_changes(cast, &name, dead).await?;
    machine.press_button(Cause::Lab).await?;
    moves::return_rebooted(cast, dead).await?;
    rollouts.wait(&name, Ending::Done).await?;
    for node in cast.nodes() {
        check_versions(cast, &node, "2.0").await?;
    }
    Ok(())
}
