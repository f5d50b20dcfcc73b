//! The first version of the packages. The revision is assigned to the claim of the first node, and
//! the plan of the node is read before the change.

use anyhow::{Context, ensure};
use muster_api::nodes::NodeSpec;

use super::super::cast::Cast;
use super::super::declare::POOL;
use super::super::driver::{LockedStack, STACK, publish};
use super::super::packages::{all_of, check_versions, read_versions};
use super::node::{NODE, check_named, converge_node, list_rollouts, show_differences};

/// Publishes a stack and installs the packages on the node. Makes the new revision the present
/// revision of the pool, and returns its number.
pub(super) async fn install_first(cast: &Cast<'_>, stack: &LockedStack) -> anyhow::Result<i32> {
    cast.watch.say(&format!(
        "1. {} is published as a revision of {POOL}; {NODE} is the first node",
        stack.version
    ));
    publish(cast, STACK, stack).await?;
    let revision = list_rollouts(cast).newest_revision().await?;
    show_differences(cast, revision).await?;
    assign_revision(cast, revision).await?;
    let plan = cast.programs.cli(&["stack", "plan", NODE], &[]).await?;
    println!("{}", plan.trim_end());
    check_named(&plan)?;
    let found = read_versions(cast, NODE).await?;
    ensure!(
        found == all_of("absent"),
        "the plan has installed packages: {found:?}"
    );
    converge_node(cast).await?;
    check_versions(cast, NODE, stack.version).await?;
    let number = revision.to_string();
    let promoted = cast
        .programs
        .cli(
            &["pool", "promote", POOL, &number],
            &["--reason", "the first node has passed its gates"],
        )
        .await?;
    println!("{}", promoted.trim_end());
    Ok(revision)
}

/// Assigns a revision to the claim of the node.
async fn assign_revision(cast: &Cast<'_>, revision: i32) -> anyhow::Result<()> {
    let node = cast.programs.client().get::<NodeSpec>(NODE).await?;
    let claim = node
        .status
        .claim
        .with_context(|| format!("{NODE} has no claim"))?;
    let number = revision.to_string();
    let assigned = cast
        .programs
        .cli(&["claim", "assign", &claim], &["--revision", &number])
        .await?;
    println!("{}", assigned.trim_end());
    Ok(())
}
