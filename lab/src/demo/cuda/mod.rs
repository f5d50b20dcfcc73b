//! The GPU stack of Debian 13 on a machine without a GPU: installed, gated by the suite of such
//! machines, and admitted to a Slurm of Debian 13. The machine moves to the other branch of the
//! driver and back, under a kill of server and agent and under a power cut. A kernel without its
//! modules is refused, and changes by hand are found and repaired.

mod containers; // A container with the driver's library
mod declare; // The objects of the run
mod drift; // Changes by hand, found and repaired
mod enter; // From a powered-off machine to a node in Slurm
mod history; // Transactions of the driver in apt's log
mod kernel; // A kernel without its modules, refused
mod moves; // Moves between the branches, with a kill and a power cut
mod scene; // Participants and shared checks
mod stacks; // Both locked stacks, and the packages on the machine

use std::path::PathBuf;
use std::time::Instant;

use self::scene::Scene;
use super::programs::Programs;
use super::{DemoOptions, oracle};
use crate::Rack;
use crate::slurm::Slurm;

/// Returns the unpacked system with the Slurm of Debian 13, made by `tests/slurm/unpack`.
pub(super) fn find_slurm(options: &DemoOptions) -> PathBuf {
    options.artifacts.cache.join("slurm/trixie")
}

/// Runs all steps, and prints the duration of each.
pub(super) async fn run(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    programs: &Programs,
) -> anyhow::Result<()> {
    let scene = Scene::build(options, rack, slurm, programs).await?;
    let (mut took, mut began) = (Vec::new(), Instant::now());
    let mut done = |step: &str| {
        took.push(format!("{step:<60} {:>4} s", began.elapsed().as_secs()));
        began = Instant::now();
    };
    declare::declare_objects(&scene).await?;
    let first = enter::enter_service(&scene).await?;
    containers::check_library(&scene, "550").await?;
    done("imaged, driver 550 installed, gated, in Slurm without a GPU");
    moves::move_to_other_branch(&scene).await?;
    containers::check_library(&scene, "535").await?;
    done("moved to driver 535, server and agent killed in the middle");
    moves::return_through_power_cut(&scene, first).await?;
    done("moved back to driver 550, the power cut in the middle");
    kernel::check_held(&scene).await?;
    kernel::check_refused(&scene).await?;
    done("a kernel without its modules held on the node and refused");
    drift::check_repaired(&scene).await?;
    done("changes by hand found, named and repaired");
    oracle::check_acts(rack, programs.client(), &scene.watch).await?;
    println!("\n=== CUDA without a GPU");
    took.iter().for_each(|line| println!("{line}"));
    Ok(())
}
