//! Rollouts of a fleet in service with jobs: forward to a new revision, halted once on the way, and
//! back, while server and agent are killed. An observer outside the server checks every commit.

mod observer; // Every commit, checked from outside
mod report; // Measurements of the rollouts

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use muster_api::client::{Client, ClientError};
use muster_api::rollouts::{PlanRollout, Rollout, RolloutState, StartRollout, SteerRollout};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::observer::{Budgets, Observer};
pub use self::report::RolloutReport;
use super::follow::Follower;
use super::programs::Programs;
use super::{FleetOptions, SITE, TELL_EVERY, Until, bar, declare, go_through, kills};
use crate::parts::Part;
use crate::run_dir::RunDir;
use crate::simulated::keep::Keep;

/// Nodes that may be out of service, in per cent of the pool, and of each rack.
const POOL_PERCENT: usize = 10;
const RACK_PERCENT: usize = 20;
/// Simulated seconds between the end of a node's last job and the start of its drain, at most.
const LEAD_S: f64 = 900.0;
const LOOK: Duration = Duration::from_secs(1);
/// The pause of a halted rollout.
const HALTED: Duration = Duration::from_secs(3);

/// Runs the rollouts. All processes started by the run have ended on return.
///
/// # Errors
/// When a program fails, a rollout does not end in time, or a commit breaks a rule.
pub async fn run(
    options: &FleetOptions,
    cancel: &CancellationToken,
) -> anyhow::Result<RolloutReport> {
    let _dir = RunDir::take(&options.dir, || {})?;
    Keep::create(&options.dir.join("machines"), &declare::machines(options))
        .context("create the simulated machines")?;
    let programs = Programs::start(options).await?;
    let ended = tokio::select! {
        ended = live(options, &programs) => ended,
        () = cancel.cancelled() => Err(anyhow::anyhow!("stopped")),
    };
    programs.close().await;
    ended.with_context(|| {
        format!(
            "seed {}; the logs are in {}",
            options.habits.seed,
            options.dir.display()
        )
    })
}

async fn live(options: &FleetOptions, programs: &Programs) -> anyhow::Result<RolloutReport> {
    let client = programs.client().clone();
    let observer = Observer::prepare(programs.database_url()).await?;
    programs.kill_and_restart(Part::Postgres).await?;
    patiently(|| declare::site(&client)).await?;
    programs.start_agent().await?;
    declare::kinds(&client, options).await?;
    if !options.json {
        println!("declaring {} nodes", options.nodes);
    }
    let mut follower = Follower::new(Until::InService);
    follower.know(declare::nodes(&client, options).await?);
    let bar = bar(options);
    go_through(options, programs, follower, &bar, Instant::now()).await?;
    bar.finish_and_clear();
    declare::budgets(&client, percent(POOL_PERCENT), percent(RACK_PERCENT)).await?;
    declare::next_stack(&client).await?;
    observer.start().await?;
    let play = async {
        let ended = roll_there_and_back(options, &client, &observer).await;
        programs.calm();
        ended
    };
    let ((forward, back), kills) = tokio::try_join!(play, kills::every(options.kills, programs))?;
    let observed = observer.check(budgets(options.nodes)).await?;
    programs.stop_agent().await?;
    let rack = Keep::open(&options.dir.join("machines"))?;
    let report = report::of(
        options,
        &rack,
        report::Run {
            forward,
            back,
            kills,
            observed,
        },
    );
    report.check()?;
    Ok(report)
}

/// Moves the pool to the new revision and back. The observer checks after each rollout: thousands of
/// nodes take an hour, and a broken rule ends the run.
async fn roll_there_and_back(
    options: &FleetOptions,
    client: &Client,
    observer: &Observer,
) -> anyhow::Result<(Duration, Duration)> {
    let forward = roll(options, client, 2, true).await?;
    let observed = observer.check(budgets(options.nodes)).await?;
    observed.check()?;
    if !options.json {
        println!("the first rollout took {} s; {observed}", forward.as_secs());
    }
    let back = roll(options, client, 1, false).await?;
    Ok((forward, back))
}

/// The budgets as the declaration means them, computed apart from the server.
fn budgets(nodes: u32) -> Budgets {
    let nodes = nodes as usize;
    Budgets {
        pool: (nodes * POOL_PERCENT / 100).max(1),
        rack_percent: RACK_PERCENT,
    }
}

fn percent(number: usize) -> String {
    format!("{number}%")
}

/// Moves the pool to a revision. Returns the time from the start to the end.
async fn roll(
    options: &FleetOptions,
    client: &Client,
    revision: i32,
    halts: bool,
) -> anyhow::Result<Duration> {
    let body = PlanRollout {
        pool: SITE.to_owned(),
        revision,
        policy: serde_json::from_value(json!({
            "canary": { "count": 1, "soak_s": 2 },
            "waves": { "sizes": ["10%", "100%"] },
            "drain_lead_s": (LEAD_S / options.habits.speed).ceil() as u32,
            "budgets": { "max_waiting": "20%", "max_changing": "20%", "max_validating": "20%" },
            "failure_budget": { "count": options.nodes },
        }))?,
    };
    let planned = patiently(|| client.plan_rollout(&body)).await?;
    ensure!(
        planned.planned == options.nodes,
        "{} nodes are planned",
        planned.planned
    );
    let start = StartRollout {
        plan: planned.plan.clone(),
        supersede: false,
    };
    let name = planned.name.as_str();
    // A killed server may have started the rollout without an answer.
    match patiently(|| client.start_rollout(name, &start)).await {
        Ok(_) => {}
        Err(error) if error.status() == Some(409) => {}
        Err(error) => return Err(error.into()),
    }
    let (began, mut told) = (Instant::now(), Instant::now());
    let mut halt = halts;
    loop {
        let rollout = patiently(|| client.rollout(name)).await?;
        match rollout.state {
            RolloutState::Done => return end(&rollout, options, began.elapsed()),
            RolloutState::Running => {}
            RolloutState::Halted if halts => {}
            state => bail!("{name} is {state:?}: {:?}", rollout.halt),
        }
        if halt && marks(&rollout, "done") > options.nodes / 4 {
            halt = false;
            let reason = SteerRollout {
                reason: "a rehearsal".to_owned(),
            };
            patiently(|| client.steer_rollout(name, "halt", &reason)).await?;
            tokio::time::sleep(HALTED).await;
            patiently(|| client.steer_rollout(name, "resume", &reason)).await?;
        }
        if !options.json && told.elapsed() > TELL_EVERY {
            told = Instant::now();
            println!(
                "[{:>4} s] {name}: {}",
                began.elapsed().as_secs(),
                line(&rollout)
            );
        }
        if began.elapsed() > options.timeout {
            let late = options.timeout.as_secs();
            bail!("{name} is not done after {late} s: {}", line(&rollout));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Checks the marks at the end. Only injected failures leave a node behind.
fn end(rollout: &Rollout, options: &FleetOptions, took: Duration) -> anyhow::Result<Duration> {
    let done = marks(rollout, "done");
    let all = options.habits.failures > 0.0 || done == options.nodes;
    ensure!(all, "{} ended with {}", rollout.name, line(rollout));
    Ok(took)
}

fn marks(rollout: &Rollout, mark: &str) -> u32 {
    rollout.marks.get(mark).copied().unwrap_or_default()
}

/// Returns the marks and the rule in force, as text for a line of progress.
fn line(rollout: &Rollout) -> String {
    let marks: Vec<String> = rollout
        .marks
        .iter()
        .map(|(mark, count)| format!("{count} {mark}"))
        .collect();
    let now = rollout.now.as_ref().and_then(|now| now.binding.as_ref());
    let rule = now.map_or(String::new(), |rule| format!("; {}", rule.sentence));
    format!("{}{rule}", marks.join(", "))
}

/// Repeats a call until the server answers. Kills end with the run, so the server returns.
async fn patiently<T, E, F>(mut call: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
    E: Away,
{
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match call().await {
            Err(error) if error.is_away() && Instant::now() < deadline => {
                tokio::time::sleep(LOOK / 4).await;
            }
            answered => return answered,
        }
    }
}

/// An error of a server that does not answer.
trait Away {
    fn is_away(&self) -> bool;
}

impl Away for ClientError {
    fn is_away(&self) -> bool {
        self.away()
    }
}

impl Away for anyhow::Error {
    fn is_away(&self) -> bool {
        self.downcast_ref::<ClientError>()
            .is_some_and(ClientError::away)
    }
}
