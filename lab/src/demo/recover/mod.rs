//! Machines in service of one pool, on which one thing after the other goes wrong: in themselves, in what lies between them, or in what is installed on
//! them. Each is asserted by the API, by the machine's own log of its power and boot, and by Slurm.

mod bad_disk; // A disk goes bad, and stays so
mod cast; // Who plays, and how they are asked
mod dead_service; // A service that its stack wants is dead
mod declare; // The fleet, its ladder and its gates
mod fabric; // What lies between them is measured, and turns slow
mod fleet; // Five of six fail the same gate at once
mod machines; // Machines from one disk, adopted
mod pins; // Packages that fit only together, and whoever would move them
mod stays_off; // A machine does not come back from its reboot
mod table; // What a person reads at the end
mod tuple; // Five packages with exact dependencies, as a repository
mod wedged; // A machine stands still

use super::programs::Programs;
use super::watch::Watch;
use super::{DemoOptions, declare as common};
use crate::Rack;
use crate::slurm::Slurm;
use cast::Cast;
use table::Table;

/// Machines of the rack: so many tell a fault of one from a fault of all.
pub(super) const MACHINES: u8 = 6;
/// A machine's packages are its own.
pub(super) const ALONE: u8 = 1;

/// Recoveries, in order; one that does not end as it must keeps the others from nothing. The breaker's hour counts what fails one gate: what all fail together comes before what one fails alone.
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

/// What lies between the machines, measured while it is well and while it is not.
pub(super) async fn measure(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    programs: &Programs,
) -> anyhow::Result<()> {
    let mut cast = in_service(options, rack, slurm, programs).await?;
    fabric::measure(options, &mut cast).await
}

/// What is installed on a machine stays what its stack says, whoever wants something else.
pub(super) async fn hold(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    programs: &Programs,
) -> anyhow::Result<()> {
    let mut cast = in_service(options, rack, slurm, programs).await?;
    pins::run(options, &mut cast).await
}

/// The rack's machines serve, each adopted and brought to its stack.
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
