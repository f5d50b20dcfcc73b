//! Requests about rollouts, as an operator types the commands, and waits for their results.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use muster_api::rollouts::{Rollout, RolloutState};
use muster_core::rollout::Mark;
use serde_json::{Value, json};

use super::programs::Programs;
use super::watch::{Fleet, Watch};

/// Time limit of a rollout of six nodes with a boot each, on emulated processors.
const ROLLOUT: Duration = Duration::from_secs(45 * 60);

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
    /// The most disruptive effect: `in_place`, `reboot` or `reinstall`.
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

/// The rollouts of a pool.
pub(super) struct Rollouts<'run> {
    pub(super) programs: &'run Programs,
    pub(super) watch: &'run Watch,
    pub(super) pool: &'run str,
    /// The order of the nodes, as in a policy.
    pub(super) order: Value,
    /// Folder for the policy's file.
    pub(super) dir: PathBuf,
}

impl Rollouts<'_> {
    /// Plans a rollout of the pool to a revision, prints the plan, and starts the rollout in place of
    /// a halted one. Returns its name.
    pub(super) async fn start(&self, target: Target<'_>) -> anyhow::Result<String> {
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
            "order": self.order,
        });
        let file = self.dir.join("policy.json");
        std::fs::write(&file, policy.to_string())?;
        let (number, file) = (target.revision.to_string(), file.display().to_string());
        let options = ["--revision", &number, "--policy", &file];
        let verb = ["rollout", "plan", self.pool];
        let plan = self.programs.cli(&verb, &options).await?;
        println!("{}", plan.trim_end());
        let (name, _) = plan.split_once(':').context("a plan has a name")?;
        self.programs
            .cli(&["rollout", "start", name], &["--yes", "--supersede"])
            .await?;
        Ok(name.to_owned())
    }

    /// Returns the number of the pool's newest revision.
    pub(super) async fn newest_revision(&self) -> anyhow::Result<i32> {
        let revisions = self.programs.client().pool_revisions(self.pool).await?;
        let newest = revisions.items.iter().map(|revision| revision.number).max();
        newest.context("the pool has no revision")
    }

    /// Waits for the state of a rollout.
    ///
    /// # Errors
    /// When the rollout ends otherwise, or too late.
    pub(super) async fn wait(&self, name: &str, ending: Ending) -> anyhow::Result<Rollout> {
        self.wait_beside(name, ending, async |_, _| Ok(())).await
    }

    /// Waits for the state of a rollout, and runs `beside` after each look at the nodes and the
    /// rollout.
    ///
    /// # Errors
    /// When the rollout ends otherwise, or too late, or when `beside` fails.
    pub(super) async fn wait_beside(
        &self,
        name: &str,
        ending: Ending,
        mut beside: impl AsyncFnMut(&Fleet, &Rollout) -> anyhow::Result<()>,
    ) -> anyhow::Result<Rollout> {
        let (client, mut last) = (self.programs.client(), None);
        let mut before = String::new();
        let what = format!("{name} to be {ending:?}");
        let ended = self.watch.until(client, &what, ROLLOUT, async |fleet| {
            // The server is killed now and then.
            let Ok(rollout) = client.rollout(name).await else {
                return Ok(false);
            };
            let line = describe(&rollout);
            if line != before {
                self.watch.say(&line);
                before = line;
            }
            beside(fleet, &rollout).await?;
            let over = match (ending, rollout.state) {
                (Ending::Done, RolloutState::Done) | (Ending::Halted, RolloutState::Halted) => true,
                (_, RolloutState::Running) => false,
                (_, other) => anyhow::bail!("{name} is {other}: {:?}", rollout.halt),
            };
            last = Some(rollout);
            Ok(over)
        });
        ended.await?;
        last.context("a rollout was read")
    }
}

/// Returns how many nodes of a rollout have a mark.
pub(super) fn count(rollout: &Rollout, mark: Mark) -> u32 {
    rollout
        .marks
        .get(mark.as_str())
        .copied()
        .unwrap_or_default()
}

/// Returns the names of the failed nodes.
pub(super) fn list_failed(rollout: &Rollout) -> Vec<&str> {
    let nodes = rollout.nodes.iter().flatten();
    nodes
        .filter(|node| node.mark == Mark::Failed)
        .map(|node| node.node.as_str())
        .collect()
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
