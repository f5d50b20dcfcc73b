//! The node of all steps, and requests about the node and its pool.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::super::super::cast::state;
use super::super::super::rollouts::{Ending, Rollouts};
use super::super::cast::Cast;
use super::super::declare::POOL;
use super::super::tuple::TUPLE;

pub(super) const NODE: &str = "n1";
/// Folder of the steps in the run's directory.
pub(super) const FOLDER: &str = "pins";
/// Time limit for a change of an emulated machine, with boots and gates.
pub(super) const CHANGE: Duration = Duration::from_secs(15 * 60);

/// Returns the rollouts of the pool.
pub(super) fn list_rollouts<'cast>(cast: &'cast Cast<'_>) -> Rollouts<'cast> {
    Rollouts {
        programs: cast.programs,
        watch: &cast.watch,
        pool: POOL,
        order: json!(["idle_first"]),
        dir: cast.dir.join(FOLDER),
    }
}

/// Waits until a rollout is done.
///
/// # Errors
/// When the rollout ends otherwise, or the node fails meanwhile. The rollout would try a failed
/// phase again.
pub(super) async fn wait_until_done(cast: &Cast<'_>, rollout: &str) -> anyhow::Result<()> {
    let rollouts = list_rollouts(cast);
    let ended = rollouts.wait_beside(rollout, Ending::Done, async |fleet, _| {
        let now = state(fleet, NODE);
        ensure!(
            !matches!(now, "failed" | "quarantined"),
            "{NODE} is {now} in {rollout}"
        );
        Ok(())
    });
    ended.await.map(drop)
}

/// Prints the differences between a revision and the present revision of the pool. Checks that the
/// list names the five packages.
pub(super) async fn show_differences(cast: &Cast<'_>, revision: i32) -> anyhow::Result<()> {
    let number = revision.to_string();
    let shown = cast
        .programs
        .cli(&["pool", "diff", POOL, &number], &[])
        .await?;
    println!("{}", shown.trim_end());
    check_named(&shown)
}

/// Checks that a list of differences names the five packages.
pub(super) fn check_named(listed: &str) -> anyhow::Result<()> {
    for (package, _) in TUPLE {
        ensure!(
            listed.contains(&format!("package {package} ")),
            "{package} is not named:\n{listed}"
        );
    }
    Ok(())
}

/// Converges the node to the revision assigned to its claim, and waits for the end.
pub(super) async fn converge_node(cast: &Cast<'_>) -> anyhow::Result<()> {
    cast.ask(
        "converge",
        &[NODE],
        &["--reason", "the rehearsal", "--wait", "--timeout", "10m"],
    )
    .await
    .map(drop)
}
