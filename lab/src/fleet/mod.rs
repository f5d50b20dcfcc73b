//! A simulated fleet: thousands of machines stored as files, with the real agents' protocol, the real engine
//! and a real Postgres.
//! Every node runs through a whole life: accepted, claimed, in service, released, available again. The logs of
//! the machines are compared with the history, also after kills.
//!
//! With a running server the run is a rehearsal: the fleet is declared under a separate site, and real
//! machines stay untouched.

mod declare; // The fleet, declared by a client
mod follow; // The state of every node, from the history
mod identity; // The identity of the agent
mod kills; // Kills programs, as a crash does
pub mod look; // Runs a fleet to look at, until stopped
mod oracle; // Checks at the end of a run
mod people; // The work of operators: claim, release, retry
mod programs; // The server, its database and the agent, as processes
mod report; // Measurements of the run
pub mod rollout; // Rollouts of the fleet, observed from outside
mod usage; // Memory and load
pub mod worker; // The agent process over simulated machines

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::sync::CancellationToken;

use crate::run_dir::RunDir;
use crate::simulated::habits::Habits;
use crate::simulated::keep::Keep;
use follow::Follower;
use people::People;
use programs::Programs;
pub use report::Report;

/// The site of all simulated nodes.
pub const SITE: &str = "simulated";
const NODES_IN_RACK: u32 = 40;
const SHOW_EVERY: Duration = Duration::from_millis(500);
/// The interval of progress lines in a pipe.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    pub nodes: u32,
    pub habits: Habits,
    /// The last act for each node.
    pub until: Until,
    pub kills: Option<Duration>,
    /// Directory of the database, the machines and the logs; emptied first.
    pub dir: PathBuf,
    pub server: ServerOptions,
    /// Time limit of the run.
    pub timeout: Duration,
    /// Print a single JSON document at the end.
    pub json: bool,
}

/// The server behind the fleet.
#[derive(Clone, Debug)]
pub enum ServerOptions {
    Own {
        muster: PathBuf,
        /// The port of the console; 0 for a free port.
        port: u16,
    },
    /// A running server.
    Running {
        url: String,
        agent_url: String,
        token_file: PathBuf,
    },
}

/// The last act for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Until {
    /// Declared, not accepted.
    Declared,
    /// Inspected, and ready for a claim.
    Available,
    /// Claimed, imaged, admitted.
    InService,
    /// Released, wiped, available again.
    Released,
}

/// Runs a fleet to the end and returns the measurements. All processes started by the run have ended on
/// return.
///
/// # Errors
/// When a node misses the time limit, or a check fails. The message names the node and the logs.
pub async fn run(options: &FleetOptions, cancel: &CancellationToken) -> anyhow::Result<Report> {
    let _dir = RunDir::take(&options.dir, || {})?;
    Keep::create(&options.dir.join("machines"), &declare::machines(options))
        .context("make the machines")?;
    let programs = Programs::start(options).await?;
    let told = tokio::select! {
        told = live(options, &programs) => told,
        () = cancel.cancelled() => Err(anyhow::anyhow!("stopped")),
    };
    programs.close().await;
    told.with_context(|| {
        format!(
            "seed {}; the logs are in {}",
            options.habits.seed,
            options.dir.display()
        )
    })
}

async fn live(options: &FleetOptions, programs: &Programs) -> anyhow::Result<Report> {
    let client = programs.client().clone();
    declare::site(&client).await?;
    programs.start_agent().await?;
    declare::kinds(&client, options).await?;
    let began = Instant::now();
    let mut follower = Follower::new(options.until);
    follower.know(declare::nodes(&client, options).await?);
    let declared = began.elapsed();
    let bar = bar(options);
    let (done, load) = tokio::try_join!(
        async {
            let ended = go_through(options, programs, follower, &bar, began).await;
            programs.calm();
            ended
        },
        kills::every(options.kills, programs),
    )?;
    bar.finish_and_clear();
    let lived = began.elapsed();
    let usage = usage::of(programs.server_pid().await);
    programs.stop_agent().await?;
    let rack = Keep::open(&options.dir.join("machines"))?;
    oracle::check(&done, &rack, options.until)?;
    Ok(report::of(
        options,
        &done,
        &rack,
        report::Run {
            declared,
            lived,
            kills: load,
            usage,
        },
    ))
}

/// Follows the history and acts as operators, until every node has reached the last act.
async fn go_through(
    options: &FleetOptions,
    programs: &Programs,
    mut follower: Follower,
    bar: &ProgressBar,
    began: Instant,
) -> anyhow::Result<Follower> {
    let people = People::new(programs.client().clone());
    let mut told = Instant::now();
    loop {
        follower.read(programs.client()).await?;
        let wanted = follower.wanted();
        bar.set_position(follower.done());
        bar.set_message(follower.line());
        if bar.is_hidden() && !options.json && told.elapsed() > TELL_EVERY {
            told = Instant::now();
            println!(
                "[{:>4} s] {}/{} {}",
                began.elapsed().as_secs(),
                follower.done(),
                options.nodes,
                follower.line()
            );
        }
        if follower.done() == u64::from(options.nodes) {
            return Ok(follower);
        }
        if began.elapsed() > options.timeout {
            anyhow::bail!(
                "{} of {} nodes are not done after {} s: {}",
                u64::from(options.nodes) - follower.done(),
                options.nodes,
                options.timeout.as_secs(),
                follower.stuck(programs.client()).await
            );
        }
        people.act(wanted).await;
        tokio::time::sleep(SHOW_EVERY).await;
    }
}

fn bar(options: &FleetOptions) -> ProgressBar {
    if options.json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::from(options.nodes));
    let style = ProgressStyle::with_template("{elapsed:>5} {bar:30} {pos}/{len} {wide_msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
