//! A simulated fleet: thousands of machines that exist only as files, behind the real agents' protocol, the real engine and a real Postgres.
//! Every node is taken through its whole life: accepted, claimed, in service, released, available again. The machines' own logs say what was
//! done to them, whatever was killed on the way.
//!
//! Against a running server it is a rehearsal: the fleet is declared under a site of its own, and nothing real is touched.

mod declare; // The fleet, as a client declares it
mod follow; // Where every node is, from the history
mod identity; // How the agent shows who it is
mod kills; // Ends programs as crashes do
mod oracle; // What must hold at the end
mod people; // What operators do: claim, release, mend
mod programs; // The server, its database and the agent, as processes
mod report; // What the run measured
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

/// The site all simulated nodes stand in.
pub const SITE: &str = "simulated";
const SHOW_EVERY: Duration = Duration::from_millis(500);
/// In a pipe, a line after this time.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    pub nodes: u32,
    pub habits: Habits,
    /// How far each node goes.
    pub until: Until,
    pub kills: Option<Duration>,
    /// Where the database, the machines and the logs go; emptied first.
    pub dir: PathBuf,
    pub server: ServerOptions,
    /// The run fails when it is not over after this.
    pub timeout: Duration,
    /// Print one JSON document at the end and nothing else.
    pub json: bool,
}

/// Which server the fleet stands behind.
#[derive(Clone, Debug)]
pub enum ServerOptions {
    /// One of its own, of this `muster` binary, on a private Postgres.
    Own { muster: PathBuf },
    /// One that runs.
    Running {
        url: String,
        agent_url: String,
        token_file: PathBuf,
    },
}

/// The last thing that is done with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Until {
    /// Declared, and not accepted.
    Declared,
    /// Inspected, and free to be claimed.
    Available,
    /// Claimed, imaged, admitted.
    InService,
    /// Given back, wiped, available again.
    Released,
}

/// Runs a fleet to its end and says what was measured. Processes it started are gone when it returns.
///
/// # Errors
/// When a node is not where it should be in time, or a promise was broken; the message says which, and where the logs are.
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

/// Follows the history and does what people do, until every node is where it should end.
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
