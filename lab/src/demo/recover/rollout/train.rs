//! Packages, a kernel argument, firmware and a BIOS setting reach every node in a single visit.

use std::path::Path;

use anyhow::ensure;
use serde_json::Value;

use super::super::super::firmware;
use super::super::super::rollouts::{Ending, Target};
use super::super::cast::Cast;
use super::super::driver::{self, Draft, STACK, publish};
use super::super::packages::check_versions;
use super::{ARGUMENT, DemoOptions, list_turns};

/// The argument in place of [`ARGUMENT`].
const OTHER: &str = "audit=1";

/// Runs the rollout, and checks the single visit of every node.
pub(super) async fn run(
    options: &DemoOptions,
    cast: &mut Cast<'_>,
    work: &Path,
) -> anyhow::Result<()> {
    cast.watch
        .say("6. packages, a kernel argument, firmware and a BIOS setting are due in one revision");
    let draft = Draft {
        name: "train",
        kernel_args: &[OTHER],
        ..Draft::of_version("1.0")
    };
    let stack = driver::lock(options, cast, work, draft).await?;
    let client = cast.programs.client();
    let mut document: Value = toml::from_str(&std::fs::read_to_string(&stack.file)?)?;
    firmware::want(client, options, &mut document).await?;
    std::fs::write(&stack.file, toml::to_string(&document)?)?;
    publish(cast, STACK, &stack).await?;
    let nodes = cast.nodes();
    let mut before = Vec::new();
    for node in &nodes {
        before.push(count_drains(cast, node).await?);
    }
    let rollouts = list_turns(cast, work);
    let revision = rollouts.newest_revision().await?;
    let name = rollouts.start(Target::to(revision)).await?;
    rollouts.wait(&name, Ending::Done).await?;
    for node in &nodes {
        check_versions(cast, node, stack.version).await?;
        let booted = cast.veteran(node)?.run(&["cat", "/proc/cmdline"]).await?;
        let has = |argument: &str| booted.split_whitespace().any(|word| word == argument);
        ensure!(
            has(OTHER) && !has(ARGUMENT),
            "{node} must run with {OTHER}, and not with {ARGUMENT}: {booted}"
        );
    }
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    firmware::holds(cast.rack, client, &cast.watch, &names).await?;
    for (node, before) in nodes.iter().zip(before) {
        let visits = count_drains(cast, node).await? - before;
        ensure!(
            visits == 1,
            "{node} left service {visits} times, and not once"
        );
    }
    Ok(())
}

/// Returns how many times a node has left service.
async fn count_drains(cast: &Cast<'_>, node: &str) -> anyhow::Result<usize> {
    let query = [
        ("node", node),
        ("topics", "node.advanced"),
        ("limit", "500"),
    ];
    let events = cast.programs.client().events(0, &query).await?.items;
    let drains = events
        .iter()
        .filter(|event| event.detail["to"] == "draining");
    Ok(drains.count())
}
