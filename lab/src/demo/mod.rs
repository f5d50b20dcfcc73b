//! The main job, on real parts: a rack of virtual machines is declared, inspected, imaged, converged, gated, admitted to a real Slurm,
//! and one node is released again. The lab is a client like any other; what it checks beside the API, it reads from the machines' own logs.

mod addresses; // Addresses of the machines
mod adopt; // A machine that somebody else built comes into service
mod artifacts; // What the image and stack builds left
mod cabling; // Two cables in each other's ports
mod cast; // Who plays in it
mod chaos; // Kills what must survive being killed
mod declare; // The fleet, as a client declares it
mod firmware; // What the stack wants of firmware and BIOS
mod hold; // What must hold while things are broken
mod network; // A bond, a VLAN and large packets on a node in service
mod oracle; // What the machines' own logs say
mod overhead; // Muster's own share of a node's time
mod programs; // muster and its database, as processes
mod recover; // What fails in service is recovered, on six machines
mod report; // What a person reads at the end
mod shared; // What nodes share is there
mod story; // The acts of the main job, in order
mod veteran; // A machine that somebody else built
mod watch; // Shows how far every node is

use std::path::PathBuf;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use crate::nfs::Nfs;
use crate::plan::AccelPlan;
use crate::run_dir::RunDir;
use crate::slurm::Slurm;
use crate::switch::Switch;
use crate::{Rack, RackPlan};

pub use artifacts::Artifacts;

const BROWSE_LIMIT: std::time::Duration = std::time::Duration::from_secs(300);

/// What a run needs and how far it goes.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Where the rack, the database and the logs go; emptied at the start.
    pub dir: PathBuf,
    /// The `muster` binary.
    pub muster: PathBuf,
    pub artifacts: Artifacts,
    pub accel: AccelPlan,
    /// Port of the console on this host's loopback; 0 picks one.
    pub port: u16,
    /// The browser test, to be run against the console at the end.
    pub browser: Option<PathBuf>,
    pub ending: Ending,
    pub disturbance: Disturbance,
    pub adoption: Adoption,
    pub play: Play,
}

/// What is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    /// The main job, with what the other options add to it or put in its place.
    MainJob,
    /// Machines in service fail and are recovered.
    Recoveries,
    /// Machines in service measure what lies between them.
    Fabric,
    /// A machine in service keeps the packages of its stack.
    Pins,
}

/// What happens after the main job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything stays up until Ctrl-C.
    Stay,
    Exit,
}

/// Whether a machine that somebody else built is adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    None,
    /// After the main job.
    Also,
    /// Instead of it.
    Alone,
}

/// Whether the run is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    None,
    /// Agent, server and database are killed in the middle of the work; the run must finish by itself.
    Kills,
}

/// Runs the main job. Whatever happens, nothing is left behind: processes, namespace, taps.
///
/// # Errors
/// When any act of the main job does not end as it must; the message says which, and where the logs are.
pub async fn run(options: DemoOptions, cancel: CancellationToken) -> anyhow::Result<()> {
    let rack_dir = options.dir.join("rack");
    let _dir = RunDir::take(&options.dir, || drop(crate::rack::clean(&rack_dir)))?;
    let mut plan = match (options.play, options.adoption, options.disturbance) {
        (Play::Recoveries | Play::Fabric, ..) => RackPlan::small(recover::MACHINES),
        (Play::Pins, ..) => RackPlan::small(recover::ALONE),
        (Play::MainJob, Adoption::Alone, _) => RackPlan {
            accel: options.accel,
            machines: Vec::new(),
        },
        (Play::MainJob, _, Disturbance::None) => RackPlan::reference(),
        (Play::MainJob, _, Disturbance::Kills) => RackPlan::with_stranger(),
    };
    plan.machines
        .extend((options.adoption != Adoption::None).then(RackPlan::veteran));
    let plan = RackPlan {
        accel: options.accel,
        ..plan
    };
    let machines = plan.machines.clone();
    let rack = Rack::start(&rack_dir, plan)
        .await
        .context("start the virtual rack")?;
    let switch = Switch::start(&rack, &machines, cabling::CROSSED).context("start the switch")?;
    let slurm = Slurm::start(&rack).await.context("start slurmctld")?;
    let nfs = Nfs::start(&rack).await.context("start the NFS server")?;
    let told = run_in(&options, &rack, &slurm, &nfs, &cancel).await;
    switch.close().await;
    nfs.close().await;
    slurm.close().await;
    rack.close().await.context("take the rack down")?;
    match told {
        // Ctrl-C ends a demo well; a run that was to reach its end did not.
        Err(_) if cancel.is_cancelled() && options.ending == Ending::Stay => Ok(()),
        told => told.with_context(|| format!("the logs are in {}", options.dir.display())),
    }
}

async fn run_in(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    nfs: &Nfs,
    cancel: &CancellationToken,
) -> anyhow::Result<()> {
    let programs = programs::Programs::start(options, rack).await?;
    let told = tokio::select! {
        told = play(options, rack, slurm, nfs, &programs) => told,
        () = cancel.cancelled() => Err(anyhow::anyhow!("stopped")),
    };
    let told = match (&told, &options.browser) {
        (Ok(()), Some(folder)) => browse(folder, options, &programs).await,
        _ => told,
    };
    if told.is_ok() && options.ending == Ending::Stay {
        println!(
            "\nThe console stays up at {} (user admin, password {}). Ctrl-C ends everything.",
            programs.url(),
            programs.password()
        );
        cancel.cancelled().await;
    }
    programs.close().await;
    told
}

async fn play(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    nfs: &Nfs,
    programs: &programs::Programs,
) -> anyhow::Result<()> {
    match options.play {
        Play::MainJob => story::tell(options, rack, slurm, nfs, programs).await,
        Play::Recoveries => recover::tell(options, rack, slurm, programs).await,
        Play::Fabric => recover::measure(options, rack, slurm, programs).await,
        Play::Pins => recover::hold(options, rack, slurm, programs).await,
    }
}

/// Opens every page of the console in a real browser, with the run's nodes on them.
async fn browse(
    folder: &std::path::Path,
    options: &DemoOptions,
    programs: &programs::Programs,
) -> anyhow::Result<()> {
    println!("\n=== every page in a browser");
    let shots = options.dir.join("pages");
    let mut node = tokio::process::Command::new("node");
    node.arg("pages.mjs").current_dir(folder).kill_on_drop(true);
    node.env("MUSTER_URL", programs.url())
        .env("MUSTER_PASSWORD", programs.password());
    node.env("MUSTER_NODE", "n1").env("MUSTER_SHOTS", &shots);
    let ran = tokio::time::timeout(BROWSE_LIMIT, node.status())
        .await
        .context("the browser test took too long")?;
    anyhow::ensure!(
        ran.context("start node")?.success(),
        "the browser test failed; its pictures are in {}",
        shots.display()
    );
    Ok(())
}
