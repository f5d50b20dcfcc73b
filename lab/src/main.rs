//! `muster-lab`: a virtual rack by hand, and a simulated fleet.

mod arguments; // Arguments of the larger subcommands

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use muster_lab::control::{Act, DiskQuery, LabClient};
use muster_lab::demo::{Adoption, Artifacts, DemoOptions, Disturbance, Ending, Play};
use muster_lab::fleet::worker::WorkerOptions;
use muster_lab::fleet::{self, FleetOptions, ServerOptions, Until, worker};
use muster_lab::simulated::habits::Habits;
use muster_lab::{LabError, Rack, RackPlan, rack};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use arguments::{DemoArguments, FleetAgentArguments, FleetArguments, LookArguments};

#[derive(Parser)]
#[command(
    name = "muster-lab",
    about = "A virtual rack: QEMU machines with Redfish BMCs in a network namespace of their own; and a fleet without hardware"
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the main job on real parts: three powered-off machines; the first enters Slurm and is released again.
    Demo(DemoArguments),
    /// Run a fleet of simulated nodes through whole lives, behind the real agents' protocol, engine and Postgres.
    Fleet(FleetArguments),
    /// Run the console over simulated nodes; the nodes enter service, fail, recover and are released, until Ctrl-C.
    Look(LookArguments),
    /// The agent of a simulated fleet, started by `fleet`.
    #[command(hide = true)]
    FleetAgent(FleetAgentArguments),
    /// Print the reference plan, with fresh BMC passwords.
    Plan,
    /// Build a rack in DIR and run the rack until Ctrl-C or SIGTERM.
    Up {
        /// The rack's directory.
        dir: PathBuf,
        /// A plan; without it, the reference rack.
        #[arg(long)]
        plan: Option<PathBuf>,
    },
    /// Show the machines of the rack running in DIR.
    Show {
        /// The rack's directory.
        dir: PathBuf,
    },
    /// Act on a machine: ACT as JSON, such as '{"act":"press_button"}' or
    /// '{"act":"inject_fault","fault":{"kind":{"fault":"hang"},"requests":1}}'.
    Act {
        /// The rack's directory.
        dir: PathBuf,
        /// The machine's name.
        machine: String,
        /// The act, as JSON.
        act: String,
    },
    /// Show the history of a machine, and the event log of the BMC.
    Log {
        /// The rack's directory.
        dir: PathBuf,
        /// The machine's name.
        machine: String,
    },
    /// Show the used part of a disk.
    Disk {
        /// The rack's directory.
        dir: PathBuf,
        /// The machine's name.
        machine: String,
        /// The disk's serial.
        serial: String,
    },
    /// Remove the remains of a killed rack from the system.
    Clean {
        /// The rack's directory.
        dir: PathBuf,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match run(Arguments::parse().verb).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("muster-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Demo(arguments) => demo(arguments).await,
        Verb::Fleet(arguments) => fleet(arguments).await,
        Verb::Look(arguments) => look(arguments).await,
        Verb::FleetAgent(arguments) => {
            let FleetAgentArguments {
                server,
                token_file,
                machines,
            } = arguments;
            worker::run(WorkerOptions {
                server,
                token_file,
                machines,
            })
            .await
        }
        Verb::Plan => print(&RackPlan::reference()),
        Verb::Up { dir, plan } => Ok(up(&dir, plan.as_deref()).await?),
        Verb::Show { dir } => print(&LabClient::new(&dir)?.machines().await?),
        Verb::Act { dir, machine, act } => {
            let act: Act = serde_json::from_str(&act)
                .map_err(|error| LabError::Plan(format!("ACT: {error}")))?;
            Ok(LabClient::new(&dir)?.act(&machine, &act).await?)
        }
        Verb::Log { dir, machine } => {
            let lab = LabClient::new(&dir)?;
            print(&lab.oracle(&machine).await?)?;
            match lab.machine(&machine).await?.bmc {
                Some(_) => print(&lab.events(&machine).await?),
                None => Ok(()),
            }
        }
        Verb::Disk {
            dir,
            machine,
            serial,
        } => print(
            &LabClient::new(&dir)?
                .read_disk(&machine, &serial, &DiskQuery::Use)
                .await?,
        ),
        Verb::Clean { dir } => {
            let cleaned = rack::clean(&dir)?;
            match cleaned.netns {
                Some(netns) => println!("removed {netns} and {} processes", cleaned.processes),
                None => println!("nothing was left"),
            }
            Ok(())
        }
    }
}

async fn up(dir: &Path, plan: Option<&Path>) -> Result<(), LabError> {
    let plan = match plan {
        Some(path) => {
            let text = std::fs::read(path).map_err(|source| LabError::Io {
                what: format!("read {}", path.display()),
                source,
            })?;
            serde_json::from_slice(&text).map_err(|error| LabError::Plan(error.to_string()))?
        }
        None => RackPlan::reference(),
    };
    let on_signal = |kind| {
        signal(kind).map_err(|source| LabError::Io {
            what: "wait for signals".to_owned(),
            source,
        })
    };
    let (mut interrupt, mut terminate) = (
        on_signal(SignalKind::interrupt())?,
        on_signal(SignalKind::terminate())?,
    );
    let rack = Rack::start(dir, plan).await?;
    println!(
        "{} runs in {} ({:?}); Ctrl-C ends it",
        rack.netns.name(),
        rack.dir.display(),
        rack.accel
    );
    for (name, slot) in rack.slots() {
        match &slot.bmc {
            Some(bmc) => println!(
                "{name}: BMC https://{}/redfish/v1/, user and password in rack.json",
                bmc.address
            ),
            None => println!("{name}: no BMC; press its button"),
        }
    }
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    rack.close().await.map(drop)
}

async fn demo(arguments: DemoArguments) -> anyhow::Result<()> {
    let mut stop = Stop::watch()?;
    let options = DemoOptions {
        dir: std::path::absolute(arguments.dir)?,
        muster: std::path::absolute(arguments.muster)?,
        before: arguments.before.map(std::path::absolute).transpose()?,
        artifacts: Artifacts {
            cache: std::path::absolute(arguments.cache)?,
            muster_node: std::path::absolute(arguments.muster_node)?,
            stack: arguments.stack,
            bundle: arguments.bundle,
            suite: arguments.suite,
            profile: arguments.profile,
        },
        accel: arguments.accel,
        port: arguments.port,
        browser: arguments.browser,
        ending: if arguments.once {
            Ending::Exit
        } else {
            Ending::Stay
        },
        adoption: match (arguments.only_adopt, arguments.adopt) {
            (true, _) => Adoption::Alone,
            (false, true) => Adoption::Also,
            (false, false) => Adoption::None,
        },
        play: match () {
            () if arguments.only_recoveries => Play::Recoveries,
            () if arguments.only_fabric => Play::Fabric,
            () if arguments.only_pins => Play::Pins,
            () if arguments.only_cuda => Play::Cuda,
            () if arguments.only_rollouts => Play::Rollouts {
                machines: arguments.machines,
            },
            () => Play::MainJob,
        },
        disturbance: if arguments.kills || arguments.only_rollouts || arguments.only_cuda {
            Disturbance::Kills
        } else {
            Disturbance::None
        },
    };
    let cancel = CancellationToken::new();
    let run = muster_lab::demo::run(options, cancel.clone());
    stop.run(run, &cancel, "stopping: machines, programs, namespace")
        .await
}

async fn fleet(arguments: FleetArguments) -> anyhow::Result<()> {
    let mut stop = Stop::watch()?;
    let seed = arguments
        .seed
        .unwrap_or_else(|| rand::random_range(0..1_000_000));
    let server = match (arguments.server, arguments.token_file) {
        (Some(url), Some(token_file)) => ServerOptions::Running {
            url,
            agent_url: arguments.agent_server.unwrap_or_default(),
            token_file,
        },
        _ => ServerOptions::Own {
            muster: std::path::absolute(arguments.muster)?,
            port: 0,
        },
    };
    let options = FleetOptions {
        nodes: arguments.nodes,
        habits: Habits {
            seed,
            speed: arguments.speed,
            failures: arguments.failures / 100.0,
            job_s: if arguments.rollout {
                arguments.job_s
            } else {
                0.0
            },
        },
        until: arguments.until,
        kills: arguments
            .kills
            .then(|| std::time::Duration::from_secs_f64(arguments.kill_every)),
        dir: std::path::absolute(arguments.dir)?,
        server,
        timeout: std::time::Duration::from_secs(arguments.timeout_s),
        json: arguments.json,
    };
    if !arguments.json {
        println!("seed {seed}");
    }
    let cancel = CancellationToken::new();
    let stopping = "stopping: agent, server, database";
    if arguments.rollout {
        let run = fleet::rollout::run(&options, &cancel);
        return tell(&stop.run(run, &cancel, stopping).await?, arguments.json);
    }
    let run = fleet::run(&options, &cancel);
    tell(&stop.run(run, &cancel, stopping).await?, arguments.json)
}

/// Prints a report, as text or as JSON.
fn tell(report: &(impl Serialize + Display), json: bool) -> anyhow::Result<()> {
    if json {
        return print(report);
    }
    println!("{report}");
    Ok(())
}

async fn look(arguments: LookArguments) -> anyhow::Result<()> {
    let mut stop = Stop::watch()?;
    let options = FleetOptions {
        nodes: arguments.nodes,
        habits: Habits {
            seed: rand::random_range(0..1_000_000),
            speed: arguments.speed,
            failures: arguments.failures / 100.0,
            job_s: 0.0,
        },
        until: Until::Released,
        kills: None,
        dir: std::path::absolute(arguments.dir)?,
        server: ServerOptions::Own {
            muster: std::path::absolute(arguments.muster)?,
            port: arguments.port,
        },
        timeout: std::time::Duration::MAX,
        json: false,
    };
    let cancel = CancellationToken::new();
    let run = fleet::look::run(&options, &cancel);
    stop.run(run, &cancel, "stopping: agent, server, database")
        .await
}

/// The signals ending a run: Ctrl-C and SIGTERM, watched from the start of the subcommand.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    fn watch() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the end of a run. After a signal, cancels the run and waits for its clean end.
    async fn run<T>(
        &mut self,
        run: impl Future<Output = anyhow::Result<T>>,
        cancel: &CancellationToken,
        stopping: &str,
    ) -> anyhow::Result<T> {
        tokio::pin!(run);
        tokio::select! {
            ended = &mut run => return ended,
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        eprintln!("{stopping}");
        cancel.cancel();
        run.await
    }
}

fn print(document: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(document)?;
    println!("{text}");
    Ok(())
}
