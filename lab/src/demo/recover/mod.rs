//! Failures of machines in service in a single pool: in the machines, in the network between
//! machines, or in the installed packages; and rollouts of new revisions to the pool. Each result is checked in the API, in the machine's own
//! log of power and boots, and in Slurm.

mod bad_disk; // A disk fails for good
mod cast; // Participants and shared requests
mod dead_service; // A required service of the stack is dead
mod declare; // The fleet, its ladder and its gates
mod driver; // The stack with five packages, locked in any version
mod fabric; // Measurement of a healthy and a slow network
mod fleet; // Five of six fail the same gate at once
mod machines; // Machines copied from a single disk and adopted
mod packages; // The five packages as dpkg reports them
mod pins; // Package versions held against other tools
mod rollout; // Rollouts in waves, with jobs on the machines
mod stays_off; // A machine stays off after its reboot
mod storms; // Tools of gates without end
mod table; // The report at the end
mod tuple; // Five packages with exact dependencies, as a repository
mod wedged; // A machine with halted CPUs

use super::programs::Programs;
use super::watch::Watch;
use super::{DemoOptions, declare as common};
use crate::Rack;
use crate::slurm::Slurm;
use cast::Cast;
use table::Table;

/// Number of machines in the rack, enough to separate a node's fault from a fault of the whole
/// fleet.
pub(super) const MACHINES: u8 = 6;
/// Number of machines for the package scenario, because packages concern only a single machine.
pub(super) const ALONE: u8 = 1;

/// Runs the recovery scenarios in order. A failed scenario does not stop the next scenarios. The
/// breaker counts the failures of a gate within an hour, so the scenario with five failing nodes
/// comes before the failures of single nodes.
pub(super) async fn tell(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    programs: &Programs,
) -> anyhow::Result<()> {
    let mut cast = in_service(options, rack, slurm, programs).await?;
    let mut table = Table::default();
    table.note_setup(&cast.watch);
    let told = dead_service::tell(&mut cast, &mut table).await;
    table.end("a dead service", told);
    let told = fleet::tell(&mut cast, &mut table).await;
    table.end("five of six", told);
    let told = bad_disk::tell(&mut cast, &mut table).await;
    table.end("a bad disk", told);
    let told = wedged::tell(&mut cast, &mut table).await;
    table.end("a wedged machine", told);
    let told = stays_off::tell(&mut cast, &mut table).await;
    table.end("a machine that stays off", told);
    super::oracle::check_acts(rack, programs.client(), &cast.watch).await?;
    table.print()
}

/// Measures the network between the machines, first healthy and then with faults.
pub(super) async fn measure(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    programs: &Programs,
) -> anyhow::Result<()> {
    let mut cast = in_service(options, rack, slurm, programs).await?;
    fabric::measure(options, &mut cast).await
}

/// Checks that the installed packages stay at the versions of the stack, even when other tools try
/// to change the packages.
pub(super) async fn hold(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    programs: &Programs,
) -> anyhow::Result<()> {
    let mut cast = in_service(options, rack, slurm, programs).await?;
    pins::run(options, &mut cast).await
}

/// Moves the pool to new revisions while jobs run on the machines.
pub(super) async fn roll_out(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    programs: &Programs,
) -> anyhow::Result<()> {
    let mut cast = in_service(options, rack, slurm, programs).await?;
    rollout::run(options, &mut cast).await
}

/// Brings the rack's machines into service: declared, built, adopted and converged to the stack.
async fn in_service<'run>(
    options: &DemoOptions,
    rack: &'run Rack,
    slurm: &'run Slurm,
    programs: &'run Programs,
) -> anyhow::Result<Cast<'run>> {
    let watch = Watch::new();
    watch.say(&format!(
        "the console is at {} (user admin, password {})",
        programs.url(),
        programs.password()
    ));
    watch.say(&format!("machines run by {}", rack.accel));
    common::site(programs.client(), options).await?;
    programs.start_agent(programs.client()).await?;
    declare::fleet(programs.client(), options, rack, slurm).await?;
    let veterans = machines::build(options, rack, slurm, &watch).await?;
    let mut cast = Cast {
        rack,
        slurm,
        programs,
        veterans,
        watch,
        dir: options.dir.clone(),
    };
    machines::into_service(&mut cast).await?;
    Ok(cast)
}
