//! Checks of a waiting rollout, and the return of a machine after a power loss.

use std::time::Duration;

use anyhow::{Context, ensure};
use muster_api::rollouts::Rollout;
use muster_core::rollout::Mark;

use super::super::super::cast::SHORT;
use super::super::super::rollouts::count;
use super::super::cast::Cast;
use super::super::declare::POOL;

/// Time limit of a boot on an emulated processor, shared with other machines.
const BOOT: Duration = Duration::from_secs(15 * 60);
/// Time without a change until a rollout counts as waiting: several ticks of the server.
const QUIET: Duration = Duration::from_secs(30);

/// Waits until the budget counts a node as out.
pub(super) async fn wait_for_out(cast: &Cast<'_>, node: &str) -> anyhow::Result<()> {
    let client = cast.programs.client();
    let what = format!("{node} to count as out");
    let out = cast.watch.until(client, &what, SHORT, async |_| {
        let budget = client.pool_disruption(POOL).await?;
        Ok(budget.nodes_out.iter().any(|out| out.node == node))
    });
    out.await
}

/// Waits until the budget is the rule that keeps the rollout, because `out` is out of service, and
/// checks that no node is taken out for [`QUIET`]. A node may wait for its jobs meanwhile, and serves.
pub(super) async fn nothing_changes(cast: &Cast<'_>, name: &str, out: &str) -> anyhow::Result<()> {
    let client = cast.programs.client();
    let (what, mut last) = (format!("{name} to wait for the budget"), String::new());
    let waits = cast.watch.until(client, &what, SHORT, async |_| {
        let rollout = client.rollout(name).await?;
        check_unchanged(&rollout, out)?;
        let binding = rollout.now.and_then(|now| now.binding);
        let binding = binding.with_context(|| format!("{name} names no rule"))?;
        let line = format!("{name} waits: {}", binding.sentence);
        if line != last {
            cast.watch.say(&line);
            last = line;
        }
        Ok(binding.code == "pool_budget")
    });
    waits.await?;
    tokio::time::sleep(QUIET).await;
    check_unchanged(&client.rollout(name).await?, out)
}

/// Returns a machine to Slurm after a power loss, as an operator does: Slurm keeps a node down after an
/// unexpected reboot.
pub(super) async fn return_rebooted(cast: &Cast<'_>, node: &str) -> anyhow::Result<()> {
    let (client, slurm) = (cast.programs.client(), cast.slurm);
    let what = format!("{node} to be back in Slurm");
    let back = cast.watch.until(client, &what, BOOT, async |_| {
        // A restarting controller gives no answer.
        let shown = slurm.scontrol(&["show", "node", node]).await;
        Ok(shown.is_ok_and(|shown| shown.contains("unexpectedly rebooted")))
    });
    back.await?;
    let name = format!("nodename={node}");
    slurm
        .scontrol(&["update", &name, "state=resume"])
        .await
        .map(drop)
        .context("resume in Slurm")
}

/// Checks that no node has been taken out.
fn check_unchanged(rollout: &Rollout, out: &str) -> anyhow::Result<()> {
    let taken = [Mark::Changing, Mark::Validating, Mark::Done, Mark::Failed];
    let is_unchanged = taken.iter().all(|mark| count(rollout, *mark) == 0);
    ensure!(
        is_unchanged,
        "{} goes on while {out} is out: {:?}",
        rollout.name,
        rollout.marks
    );
    Ok(())
}
