//! A fleet for a first look: simulated nodes enter service, serve, fail, recover and are released,
//! until the run is stopped. A rollout moves the first nodes to the next revision. The run takes no
//! measurements and kills no program.

use std::time::Duration;

use anyhow::Context;
use muster_api::client::Client;
use muster_api::nodes::{NodeSpec, NodeStatus};
use muster_api::object::Object;
use muster_api::rollouts::{PlanRollout, StartRollout};
use rand::RngExt as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::follow::{Want, Wanted};
use super::people::People;
use super::programs::Programs;
use super::{FleetOptions, SITE, declare};
use crate::run_dir::RunDir;
use crate::simulated::keep::Keep;

/// Nodes in service at the start of the rollout.
const SERVING: usize = 40;
/// The interval between two rounds of the operators.
const ROUND: Duration = Duration::from_secs(2);

/// Chances per node and round. A node in service is released after 17 minutes on average, and swept
/// every 3 minutes.
const CLAIM: f64 = 0.2;
const RELEASE: f64 = 0.002;
const SWEEP: f64 = 0.01;
/// A person looks at a failed node after 40 seconds on average.
const HELP: f64 = 0.05;

/// The recovery of a failing node, from the mildest rung to the most severe.
const RUNGS: [&str; 4] = ["restart_services", "reboot", "power_cycle", "reimage"];

/// Runs a fleet until cancelled. All programs started by the run have ended on return.
///
/// # Errors
/// When a program does not start, or the server refuses a declaration.
pub async fn run(options: &FleetOptions, cancel: &CancellationToken) -> anyhow::Result<()> {
    let _dir = RunDir::take(&options.dir, || {})?;
    Keep::create(&options.dir.join("machines"), &declare::machines(options))
        .context("create the simulated machines")?;
    let programs = Programs::start(options).await?;
    let ended = tokio::select! {
        ended = live(options, &programs) => ended,
        () = cancel.cancelled() => Ok(()),
    };
    programs.close().await;
    ended.with_context(|| format!("the logs are in {}", options.dir.display()))
}

async fn live(options: &FleetOptions, programs: &Programs) -> anyhow::Result<()> {
    let client = programs.client().clone();
    println!(
        "the console is at {} (user admin, password {})",
        programs.url(),
        programs.password().await?
    );
    println!(
        "{} simulated nodes come now; Ctrl-C ends the run",
        options.nodes
    );
    declare::site(&client).await?;
    programs.start_agent().await?;
    declare::kinds(&client, options).await?;
    declare::health(
        &client,
        json!({ "sweep": SITE, "recovery": { "rungs": RUNGS } }),
    )
    .await?;
    declare::nodes(&client, options).await?;
    let people = People::new(client.clone());
    let mut has_rollout = false;
    loop {
        match client.list_all::<NodeSpec>(None).await {
            Ok(nodes) => {
                people.act(choose(&nodes)).await;
                if !has_rollout && serves(&nodes, options.nodes) {
                    has_rollout = roll_out(&client).await?;
                }
            }
            // A busy or restarting server answers the next round.
            Err(error) if error.away() => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(ROUND).await;
    }
}

/// Returns whether a part of the fleet serves, at least [`SERVING`] nodes of a large fleet.
fn serves(nodes: &[Object<NodeSpec, NodeStatus>], fleet: u32) -> bool {
    let serving = nodes
        .iter()
        .filter(|node| node.status.state == "in_service");
    serving.count() >= SERVING.min((fleet / 4).max(1) as usize)
}

/// Publishes the next version of the stack, and starts a rollout of the pool. Returns whether a rollout
/// was planned. An unreachable server plans in the next round.
async fn roll_out(client: &Client) -> anyhow::Result<bool> {
    declare::next_stack(client).await?;
    let body = PlanRollout {
        pool: SITE.to_owned(),
        revision: 2,
        policy: serde_json::from_value(json!({
            "canary": { "count": 2, "soak_s": 60 },
            "waves": { "exponential": { "initial": "10%", "factor": 2 } },
            "budgets": { "max_changing": "20%", "max_validating": "20%" },
        }))?,
    };
    let planned = match client.plan_rollout(&body).await {
        Ok(planned) => planned,
        Err(error) if error.away() => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let start = StartRollout {
        plan: planned.plan,
        supersede: false,
    };
    match client.start_rollout(&planned.name, &start).await {
        Ok(_) => Ok(true),
        // A claim has joined or left since the plan. The plan waits for a person.
        Err(error) if error.away() || error.status() == Some(409) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Returns the actions of the operators in this round.
fn choose(nodes: &[Object<NodeSpec, NodeStatus>]) -> Vec<Want> {
    let mut dice = rand::rng();
    let mut by_chance = |chance: f64, what| dice.random_bool(chance).then_some(what);
    let mut choice = |status: &NodeStatus| match status.state.as_str() {
        "available" => by_chance(CLAIM, Wanted::Claim),
        "in_service" => {
            by_chance(RELEASE, Wanted::Release).or_else(|| by_chance(SWEEP, Wanted::Ask("sweep")))
        }
        "failed" => by_chance(HELP, Wanted::Ask("retry")),
        "quarantined" => by_chance(HELP, Wanted::LeaveQuarantine),
        _ => None,
    };
    let wants = nodes.iter().filter_map(|node| {
        Some(Want {
            what: choice(&node.status)?,
            node: node.name.to_string(),
        })
    });
    wants.collect()
}
