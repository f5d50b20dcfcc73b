//! Requests about rollouts, as an operator types the commands, and waits for their results.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use muster_api::rollouts::{Rollout, RolloutState};
use muster_core::rollout::Mark;
use serde_json::json;

use super::super::cast::{Cast, SHORT};
use super::super::declare::POOL;
use super::TURN;
use crate::parts::Part;

/// Time limit of a rollout of six nodes with a boot each, on emulated processors.
const ROLLOUT: Duration = Duration::from_secs(45 * 60);
/// Time limit of a boot on an emulated processor, shared with other machines.
const BOOT: Duration = Duration::from_secs(15 * 60);
/// Time without a change until a rollout counts as waiting: several ticks of the server.
const QUIET: Duration = Duration::from_secs(30);

/// The awaited state of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Done,
    Halted,
}

/// A planned rollout.
#[derive(Clone, Copy)]
pub(super) struct Target<'target> {
    pub(super) revision: i32,
    /// Without a node, the planner chooses one.
    pub(super) canary: &'target [&'target str],
    /// The most disruptive effect: `reboot` or `reinstall`.
    pub(super) allow: &'target str,
}

impl Target<'static> {
    /// Returns a rollout without reinstalls, whose canary the planner chooses.
    pub(super) fn to(revision: i32) -> Self {
        Self {
            revision,
            canary: &[],
            allow: "reboot",
        }
    }
}

/// Plans a rollout of the pool to a revision, prints the plan, and starts the rollout in place of a
/// halted one. Returns its name.
pub(super) async fn start(
    cast: &Cast<'_>,
    work: &Path,
    target: Target<'_>,
) -> anyhow::Result<String> {
    let first = match target.canary {
        [] => json!({ "count": 1, "soak_s": 20 }),
        nodes => json!({ "nodes": nodes, "soak_s": 20 }),
    };
    let policy = json!({
        "canary": first,
        "waves": { "sizes": [2] },
        "budgets": { "max_changing": 2 },
        "failure_budget": { "count": 0 },
        "allow": target.allow,
        "order": [{ "label": TURN }, "idle_first"],
    });
    let file = work.join("policy.json");
    std::fs::write(&file, policy.to_string())?;
    let (number, file) = (target.revision.to_string(), file.display().to_string());
    let options = ["--revision", &number, "--policy", &file];
    let programs = cast.programs;
    let plan = programs.cli(&["rollout", "plan", POOL], &options).await?;
    println!("{}", plan.trim_end());
    let (name, _) = plan.split_once(':').context("a plan has a name")?;
    programs
        .cli(&["rollout", "start", name], &["--yes", "--supersede"])
        .await?;
    Ok(name.to_owned())
}

/// Returns the number of the pool's newest revision.
pub(super) async fn newest_revision(cast: &Cast<'_>) -> anyhow::Result<i32> {
    let revisions = cast.programs.client().pool_revisions(POOL).await?.items;
    let newest = revisions.iter().map(|revision| revision.number).max();
    newest.context("the pool has no revision")
}

/// Waits for the state of a rollout. Kills a part of Muster when the given number of nodes is done and
/// a further node changes.
///
/// # Errors
/// When the rollout ends otherwise, or too late.
pub(super) async fn wait(
    cast: &Cast<'_>,
    name: &str,
    ending: Ending,
    kills: &[(u32, Part)],
) -> anyhow::Result<Rollout> {
    let (client, mut kills, mut last) = (cast.programs.client(), kills.iter(), None);
    let mut next = kills.next();
    let mut before = String::new();
    let what = format!("{name} to be {ending:?}");
    let ended = cast.watch.until(client, &what, ROLLOUT, async |_| {
        // The server is killed now and then.
        let Ok(rollout) = client.rollout(name).await else {
            return Ok(false);
        };
        let line = describe(&rollout);
        if line != before {
            cast.watch.say(&line);
            before = line;
        }
        let (done, changing) = (count(&rollout, Mark::Done), count(&rollout, Mark::Changing));
        if let Some((at, part)) = next.filter(|(at, _)| *at <= done && changing > 0) {
            cast.watch
                .say(&format!("kill -9 of the {part:?}, with {at} nodes done"));
            cast.programs.kill_and_restart(*part).await?;
            next = kills.next();
        }
        let over = match (ending, rollout.state) {
            (Ending::Done, RolloutState::Done) | (Ending::Halted, RolloutState::Halted) => true,
            (_, RolloutState::Running) => false,
            (_, other) => anyhow::bail!("{name} is {other}: {:?}", rollout.halt),
        };
        last = Some(rollout);
        Ok(over)
    });
    ended.await?;
    ensure!(next.is_none(), "{next:?} was not killed");
    last.context("a rollout was read")
}

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

fn describe(rollout: &Rollout) -> String {
    let marks: Vec<String> = rollout
        .marks
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(mark, count)| format!("{count} {}", mark.replace('_', " ")))
        .collect();
    let (name, state) = (&rollout.name, &rollout.state);
    let halt = rollout.halt.as_ref();
    let halt = halt.map_or_else(String::new, |halt| format!("; {}", halt.sentence));
    format!("{name} is {state}: {}{halt}", marks.join(", "))
}

fn count(rollout: &Rollout, mark: Mark) -> u32 {
    rollout
        .marks
        .get(mark.as_str())
        .copied()
        .unwrap_or_default()
}
