//! Moves between the two branches of the driver, as rollouts: under a kill of server and agent, and
//! under a power cut, each in the middle of the package transaction.

use anyhow::ensure;
use muster_api::client::Client;
use muster_api::operations::Step;
use serde_json::json;

use super::super::rollouts::{Ending, Rollouts, Target};
use super::history;
use super::scene::{NODE, POOL, STACK, Scene};
use super::stacks::is_driver_half_done;
use crate::machine::oracle::Cause;
use crate::parts::Part;

/// Number of operations searched for a line of their logs.
const RECENT: &str = "10";
/// A line of the converge after a power cut.
const HEALED: &str = "was interrupted";

/// Publishes the stack with driver 535, and moves the pool to its revision. Server and agent are
/// killed during the package transaction. The move must be a single transaction of apt.
pub(super) async fn move_to_other_branch(scene: &Scene<'_>) -> anyhow::Result<()> {
    let rollouts = plan_rollouts(scene);
    let former = rollouts.newest_revision().await?;
    let blobs = &scene.options.artifacts.bundle;
    scene.other.publish(scene.programs, STACK, blobs).await?;
    let revision = rollouts.newest_revision().await?;
    ensure!(revision > former, "the stack made no revision of the pool");
    scene.watch.say(&format!(
        "2. driver 535 is revision {revision}; server and agent are killed in the transaction"
    ));
    scene
        .first
        .check_installed(&scene.admin, &scene.other)
        .await?;
    let before = history::count_moves(&scene.admin).await?;
    let name = rollouts.start(build_target(revision)).await?;
    let (client, mut killed) = (scene.client(), false);
    let moved = rollouts.wait_beside(&name, Ending::Done, async |_, _| {
        if !killed && is_installing(client).await {
            kill_programs(scene).await?;
            killed = true;
        }
        Ok(())
    });
    moved.await?;
    ensure!(killed, "no look saw the package transaction");
    let transactions = history::count_moves(&scene.admin).await? - before;
    ensure!(
        transactions == 1,
        "the move took {transactions} transactions of apt"
    );
    scene
        .other
        .check_installed(&scene.admin, &scene.first)
        .await?;
    scene.check_service().await
}

/// Moves the pool back to the given revision, with driver 550. The power is cut while packages of
/// the driver are installed in part. The next converge must finish the work.
pub(super) async fn return_through_power_cut(
    scene: &Scene<'_>,
    revision: i32,
) -> anyhow::Result<()> {
    scene.watch.say(&format!(
        "3. the pool goes back to revision {revision}; the power is cut in the transaction"
    ));
    let rollouts = plan_rollouts(scene);
    let name = rollouts.start(build_target(revision)).await?;
    let machine = std::sync::Arc::clone(&scene.rack.slot(NODE)?.machine);
    let (client, mut cut) = (scene.client(), false);
    let moved = rollouts.wait_beside(&name, Ending::Done, async |_, _| {
        if !cut && is_installing(client).await && is_driver_half_done(&scene.admin).await {
            machine.power_cycle(Cause::Lab).await?;
            scene.watch.say("the power went, and is back");
            cut = true;
        }
        Ok(())
    });
    moved.await?;
    ensure!(cut, "no look saw a package of the driver in part");
    ensure!(
        has_logged(client, HEALED).await?,
        "no converge found an interrupted transaction"
    );
    scene
        .first
        .check_installed(&scene.admin, &scene.other)
        .await?;
    scene.check_service().await
}

fn plan_rollouts<'scene>(scene: &'scene Scene<'_>) -> Rollouts<'scene> {
    Rollouts {
        programs: scene.programs,
        watch: &scene.watch,
        pool: POOL,
        order: json!(["idle_first"]),
        dir: scene.work.clone(),
    }
}

fn build_target(revision: i32) -> Target<'static> {
    Target {
        canary: &[NODE],
        ..Target::to(revision)
    }
}

/// Kills server and agent, then starts both again. The transaction on the machine goes on.
async fn kill_programs(scene: &Scene<'_>) -> anyhow::Result<()> {
    scene.watch.say("kill -9 of server and agent");
    for part in [Part::Server, Part::Agent] {
        scene.programs.kill(part).await?;
    }
    for part in [Part::Server, Part::Agent] {
        scene.programs.start_again(part).await?;
    }
    Ok(())
}

/// Whether a package transaction is under way: the only progress of a converge counted in steps. A
/// server without an answer counts as no.
async fn is_installing(client: &Client) -> bool {
    let Ok(operations) = client.list_operations(&[("limit", RECENT)]).await else {
        return false;
    };
    let open = operations.items.iter().filter(|operation| !operation.done);
    open.flat_map(|operation| &operation.steps)
        .any(counts_steps)
}

fn counts_steps(step: &Step) -> bool {
    let is_counted = step.progress.as_ref().is_some_and(|progress| {
        let has_begun = progress.done.is_some_and(|done| done > 0);
        has_begun && progress.unit.as_deref() == Some("steps")
    });
    is_counted && step.step == "converge" && step.state == "leased"
}

/// Whether the log of a recent operation has a line with the text.
async fn has_logged(client: &Client, text: &str) -> anyhow::Result<bool> {
    let operations = client.list_operations(&[("limit", RECENT)]).await?;
    for operation in operations.items {
        let log = client.operation_log(operation.id, 0).await?;
        if log.items.iter().any(|line| line.text.contains(text)) {
            return Ok(true);
        }
    }
    Ok(false)
}
