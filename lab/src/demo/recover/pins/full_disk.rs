//! A rollout back to the first version, with a full disk. The node fails before any change of a
//! package, and the rollout halts.

use anyhow::ensure;
use muster_api::nodes::NodeSpec;

use super::super::super::rollouts::{Ending, Target, list_failed};
use super::super::cast::Cast;
use super::super::declare::POOL;
use super::super::packages::check_versions;
use super::node::{NODE, list_rollouts, show_differences};

/// Space left on the disk, in bytes: less than the minimum for a package.
const LEFT_FREE: u64 = 40 << 20;
/// The code of a halt by a failed node of the canary.
const CANARY_FAILED: &str = "canary_failed";
/// The failure of the step, without its numbers.
const NO_SPACE: &str = "MiB are free on /";

/// Fills the disk, rolls out the former revision, waits for the halt, and empties the disk. Returns
/// the name of the halted rollout.
pub(super) async fn fill_disk(cast: &Cast<'_>, revision: i32) -> anyhow::Result<String> {
    cast.watch.say(&format!(
        "5. {POOL} goes back to revision {revision} with 1.0, and the disk is full"
    ));
    show_differences(cast, revision).await?;
    let fill = format!(
        "fallocate -l $(($(df --output=avail -B1 / | tail -1) - {LEFT_FREE})) /root/filler"
    );
    let veteran = cast.veteran(NODE)?;
    veteran.run(&[&fill]).await?;
    let rollouts = list_rollouts(cast);
    let name = rollouts.start(Target::to(revision)).await?;
    // A failed phase is tried again, and fails with the same result.
    let halted = rollouts.wait(&name, Ending::Halted).await?;
    let code = halted.halt.as_ref().map(|halt| halt.code.as_str());
    ensure!(
        code == Some(CANARY_FAILED),
        "{name} halted for another reason: {:?}",
        halted.halt
    );
    let failed = list_failed(&halted);
    ensure!(failed == [NODE], "{failed:?} failed, and not {NODE}");
    let shown = cast.programs.cli(&["rollout", "show", &name], &[]).await?;
    println!("{}", shown.trim_end());
    ensure!(
        shown.contains(NO_SPACE),
        "the reason of the halt is not shown:\n{shown}"
    );
    let status = cast.programs.client().get::<NodeSpec>(NODE).await?.status;
    let reason = status.reason.unwrap_or_default();
    ensure!(
        status.state == "failed" && reason.contains(NO_SPACE),
        "{NODE} is {}: {reason}",
        status.state
    );
    println!("{}", cast.ask("why", &[NODE], &[]).await?.trim_end());
    check_versions(cast, NODE, "2.0").await?;
    veteran.run(&["rm", "/root/filler"]).await?;
    Ok(name)
}
