//! The main job with real parts. A rack of virtual machines is declared, inspected, imaged,
//! converged, gated and admitted to a real Slurm. Then a node is released again. The lab is an
//! ordinary API client; for checks independent of the API, the lab reads the machines' own logs.

mod addresses; // IP addresses of the machines
mod adopt; // Adoption of a machine already in service
mod artifacts; // Files made by the image and stack builds
mod cabling; // Cabling check with two swapped cables
mod cast; // Names of the nodes and the time limits
mod change; // A rollout to two nodes, halted by a gate, and back
mod chaos; // Kills of programs and a power cut
mod cuda; // A GPU stack of Debian 13, moved between two branches
mod deb; // Packages built for a run
mod declare; // Declaration of the fleet by an API client
mod firmware; // Firmware and BIOS settings required by the stack
mod hold; // Guarantees during faults
mod jobs; // Jobs of Slurm on the admitted node
mod network; // A bond, a VLAN and large packets on a node in service
mod oracle; // Checks from the machines' own logs and disks
mod overhead; // Muster's own share of a node's time
mod programs; // muster and its database, as processes
mod recover; // Recovery of nodes in service, on up to six machines
mod report; // The report at the end of a run
mod rollouts; // Requests about rollouts
mod shared; // Check of the shared file system
mod story; // The acts of the main job, in order
mod veteran; // A machine built and run before Muster
mod watch; // Progress of every node

use std::path::PathBuf;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use crate::nfs::Nfs;
use crate::plan::AccelPlan;
use crate::run_dir::RunDir;
use crate::slurm::Slurm;
use crate::switch::Switch;
use crate::{LabError, Rack, RackPlan};

pub use artifacts::Artifacts;

const BROWSE_LIMIT: std::time::Duration = std::time::Duration::from_secs(300);

/// Inputs and extent of a run.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Directory for the rack, the database and the logs; emptied at the start.
    pub dir: PathBuf,
    /// The `muster` binary.
    pub muster: PathBuf,
    /// The `muster` binary of the version before. Server and agent start with it, and become today's
    /// version at their first kill.
    pub before: Option<PathBuf>,
    pub artifacts: Artifacts,
    pub accel: AccelPlan,
    /// Port of the console on this host's loopback; 0 picks a free port.
    pub port: u16,
    /// Folder of the browser test, run against the console at the end.
    pub browser: Option<PathBuf>,
    pub ending: Ending,
    pub disturbance: Disturbance,
    pub adoption: Adoption,
    pub play: Play,
}

/// The scenario of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    /// The main job, extended or replaced by an adoption according to the other options.
    MainJob,
    /// Machines in service fail and are recovered.
    Recoveries,
    /// Machines in service measure the network between them.
    Fabric,
    /// A machine in service keeps the package versions of its stack.
    Pins,
    /// Machines in service with jobs move to new revisions.
    Rollouts { machines: u8 },
    /// A machine without a GPU runs a GPU stack, and moves between two branches of the driver.
    Cuda,
}

/// The behavior after the last act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All programs stay up until Ctrl-C.
    Stay,
    Exit,
}

/// Whether the run adopts a machine already in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    None,
    /// Adoption after the main job.
    Also,
    /// Adoption instead of the main job.
    Alone,
}

/// Whether the run injects faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    None,
    /// Agent, server and database are killed, and a machine loses power, during the work. The run
    /// must finish without help.
    Kills,
}

/// Runs the chosen scenario. In every case the processes, the namespace and the taps are removed at
/// the end.
///
/// # Errors
/// When an act does not end as required. The message names the act and the directory of the logs.
pub async fn run(options: DemoOptions, cancel: CancellationToken) -> anyhow::Result<()> {
    let rack_dir = options.dir.join("rack");
    let _dir = RunDir::take(&options.dir, || drop(crate::rack::clean(&rack_dir)))?;
    let mut plan = match (options.play, options.adoption, options.disturbance) {
        (Play::Recoveries | Play::Fabric, ..) => RackPlan::small(recover::MACHINES),
        (Play::Rollouts { machines }, ..) => RackPlan::small(machines),
        (Play::Pins, ..) => RackPlan::small(recover::ALONE),
        (Play::Cuda, ..) => RackPlan::with_large_disks(),
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
    let slurm = start_slurm(&options, &rack)
        .await
        .context("start slurmctld")?;
    let nfs = Nfs::start(&rack).await.context("start the NFS server")?;
    let told = run_in(&options, &rack, &slurm, &nfs, &cancel).await;
    switch.close().await;
    nfs.close().await;
    slurm.close().await;
    rack.close().await.context("take the rack down")?;
    match told {
        // Ctrl-C is a normal end of a run with `Ending::Stay`, and a failure of a run with
        // `Ending::Exit`.
        Err(_) if cancel.is_cancelled() && options.ending == Ending::Stay => Ok(()),
        told => told.with_context(|| format!("the logs are in {}", options.dir.display())),
    }
}

/// Starts the controller. A controller serves no slurmd newer than the controller, so nodes with
/// Debian 13 get the controller of Debian 13.
async fn start_slurm(options: &DemoOptions, rack: &Rack) -> Result<Slurm, LabError> {
    match options.play {
        Play::MainJob | Play::Recoveries | Play::Fabric | Play::Pins | Play::Rollouts { .. } => {
            Slurm::start(rack).await
        }
        Play::Cuda => Slurm::start_release(rack, &cuda::find_slurm(options)).await,
    }
}

async fn run_in(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    nfs: &Nfs,
    cancel: &CancellationToken,
) -> anyhow::Result<()> {
    let tools = slurm.programs.as_deref();
    let programs = programs::Programs::start(options, rack, tools).await?;
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
        Play::Rollouts { .. } => recover::roll_out(options, rack, slurm, programs).await,
        Play::Cuda => cuda::run(options, rack, slurm, programs).await,
    }
}

/// Opens every page of the console in a real browser, showing the run's nodes. Screenshots go to
/// the run's directory.
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
