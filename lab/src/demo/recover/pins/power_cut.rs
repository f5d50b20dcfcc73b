//! A rollout to the second version. The power is cut in the transaction of the packages, and the
//! next run on the node finishes the transaction.

use anyhow::{Context, ensure};
use muster_api::client::Client;
use muster_api::operations::Operation;

use super::super::super::rollouts::Target;
use super::super::cast::Cast;
use super::super::driver::{LockedStack, STACK, publish};
use super::super::packages::{all_of, check_versions, read_versions};
use super::super::tuple::{BUILDING, SLOW};
use super::node::{CHANGE, NODE, list_rollouts, show_differences, wait_until_done};
use crate::machine::oracle::Cause;

/// Publishes a stack and rolls the new revision out. Cuts the power while the packages are half
/// configured.
pub(super) async fn cut_power(cast: &Cast<'_>, stack: &LockedStack) -> anyhow::Result<()> {
    cast.watch.say(&format!(
        "2. {} is published; the rollout loses the power while packages are half configured",
        stack.version
    ));
    publish(cast, STACK, stack).await?;
    let rollouts = list_rollouts(cast);
    let revision = rollouts.newest_revision().await?;
    show_differences(cast, revision).await?;
    check_versions(cast, NODE, "1.0")
        .await
        .context("a published revision changes no node")?;
    cast.veteran(NODE)?.run(&["touch", SLOW]).await?;
    let name = rollouts.start(Target::to(revision)).await?;
    wait_for_building(cast).await?;
    let half = read_versions(cast, NODE).await?;
    ensure!(
        half != all_of("1.0") && half != all_of("2.0"),
        "no package is half configured: {half:?}"
    );
    cast.watch.say(&format!(
        "the power is cut and restored; the packages are: {}",
        half.join(", ")
    ));
    cast.machine(NODE)?.power_cycle(Cause::Lab).await?;
    wait_until_done(cast, &name).await?;
    check_log(cast.programs.client()).await?;
    check_versions(cast, NODE, stack.version).await
}

/// Waits until the first package is being configured.
async fn wait_for_building(cast: &Cast<'_>) -> anyhow::Result<()> {
    let (client, veteran) = (cast.programs.client(), cast.veteran(NODE)?);
    let half = cast.watch.until(
        client,
        "the packages to be half configured",
        CHANGE,
        async |_| Ok(veteran.run(&["test", "-e", BUILDING]).await.is_ok()),
    );
    half.await
}

/// Checks the log of the converge: the transaction was finished, and the tools of the gates had a
/// limit of processes.
async fn check_log(client: &Client) -> anyhow::Result<()> {
    let operation = find_converge(client).await?;
    let log = client.operation_log(operation.id, 0).await?;
    let contains = |text: &str| log.items.iter().any(|line| line.text.contains(text));
    ensure!(
        contains("was interrupted"),
        "the next run has found no interrupted transaction: {:?}",
        log.items
    );
    ensure!(
        !contains("without a limit of processes"),
        "the job of the gates has no cgroup for its tools: {:?}",
        log.items
    );
    Ok(())
}

/// Returns the newest converge, requested by the rollout.
async fn find_converge(client: &Client) -> anyhow::Result<Operation> {
    let page = client.list_operations(&[("limit", "20")]).await?;
    let mut operations = page.items.into_iter();
    operations
        .find(|operation| operation.kind == "converge")
        .context("the rollout has requested no converge")
}
