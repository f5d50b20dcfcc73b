//! Five packages with exact mutual versions, on a machine in service. Only Muster changes the
//! versions, of all five packages together: first by an assigned revision and a converge, then by
//! rollouts. Disturbances come with the steps: a power cut, manual changes, a full disk, other
//! programs.

mod drift; // Changes by hand, found and repaired
mod full_disk; // A rollout halted by a full disk
mod held_lock; // A resumed rollout, waiting for the lock of dpkg
mod install; // The first version, by a revision assigned to a claim
mod node; // The node, and requests about the node and its pool
mod other_programs; // apt and unattended-upgrades with newer versions
mod power_cut; // A power cut in the middle of a rollout
mod removal; // The way back to the stack without the packages

use std::time::Instant;

use super::super::DemoOptions;
use super::cast::Cast;
use super::driver::{self, Draft};
use super::storms;
use node::{FOLDER, NODE, list_rollouts};

/// Runs all steps, and prints the duration of every step.
pub(super) async fn run(options: &DemoOptions, cast: &mut Cast<'_>) -> anyhow::Result<()> {
    let (work, setup) = (cast.dir.join(FOLDER), cast.watch.elapsed());
    driver::build_repository(&work).await?;
    let first = driver::lock(options, cast, &work, Draft::of_version("1.0")).await?;
    let second = driver::lock(options, cast, &work, Draft::of_version("2.0")).await?;
    let without = list_rollouts(cast).newest_revision().await?;
    let mut took = Vec::new();
    let mut began = Instant::now();
    let mut done = |what: &str| {
        took.push(format!("{what:<52} {:>4} s", began.elapsed().as_secs()));
        began = Instant::now();
    };
    cast.watch
        .say("tools of gates fork and take memory without end");
    storms::tell(cast, NODE).await?;
    done("tools without end stopped at their limits");
    let revision = install::install_first(cast, &first).await?;
    done("planned, then installed on the first node");
    power_cut::cut_power(cast, &second).await?;
    done("upgraded by a rollout with a power cut");
    other_programs::offer_newer(cast, &work).await?;
    done("kept against apt and unattended-upgrades");
    drift::repair_changes(cast).await?;
    done("changes by hand found, named and repaired");
    let halted = full_disk::fill_disk(cast, revision).await?;
    done("a rollout halted by a full disk, no package changed");
    held_lock::resume_rollout(cast, &halted).await?;
    done("a held lock waited for, then back to 1.0");
    removal::remove_packages(cast, without).await?;
    done("removed with the stack that brought the packages");
    println!(
        "\n=== pins; the machine was in service after {} s",
        setup.as_secs()
    );
    took.iter().for_each(|line| println!("{line}"));
    Ok(())
}
