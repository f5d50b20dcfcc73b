//! An observer outside the server. Triggers of the observer log the ledger's facts in every
//! transaction; the log is read in the order of the commits, and every commit is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::process::Stdio;

use anyhow::{Context, ensure};
use muster_core::lifecycle::state::State;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use uuid::Uuid;

/// The log in the order of the commits. A timestamp is given before the locks of the transaction are
/// released, so a transaction that waited for another one comes later.
const READ: &str = "COPY (SELECT json_build_object('tx', txid::text, 'fact', fact) FROM observer.facts \
     ORDER BY pg_xact_commit_timestamp(txid::xid), txid, seq) TO STDOUT;";

/// Connects to the database of a run.
#[derive(Debug)]
pub(super) struct Observer {
    database: String,
}

/// The budgets, computed here, not by the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budgets {
    /// Most nodes of the pool out of service.
    pub pool: usize,
    /// Most nodes of a rack out of service, in per cent of the rack.
    pub rack_percent: usize,
}

/// The findings of the observer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Observed {
    /// Transactions that changed a fact of the ledger.
    pub commits: usize,
    /// Acts that took a serving node out.
    pub taken: usize,
    pub most_out: usize,
    pub most_out_of_a_rack: usize,
    /// Commits that broke a rule, as sentences.
    pub violations: Vec<String>,
}

impl Observed {
    /// Checks that no commit broke a rule.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let broken = &self.violations;
        ensure!(
            broken.is_empty(),
            "{} commits broke a rule: {}",
            broken.len(),
            broken[..broken.len().min(20)].join("; ")
        );
        Ok(())
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} commits observed, {} took a serving node out, {} beyond a budget or under a halt; at most {} nodes out, {} of a rack",
            self.commits,
            self.taken,
            self.violations.len(),
            self.most_out,
            self.most_out_of_a_rack
        )
    }
}

#[derive(Deserialize)]
struct Line {
    tx: String,
    fact: Fact,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fact {
    Place {
        id: Uuid,
        name: String,
        rack: String,
    },
    Node {
        id: Uuid,
        state: State,
        held: bool,
    },
    Claim {
        node: Option<Uuid>,
        served: bool,
        bound: bool,
    },
    Rollout(String),
}

impl Observer {
    /// Makes the database keep the times of commits. Takes effect with the next start of Postgres.
    pub(super) async fn prepare(database: String) -> anyhow::Result<Self> {
        let observer = Self { database };
        observer
            .sql("ALTER SYSTEM SET track_commit_timestamp = on;")
            .await?;
        Ok(observer)
    }

    /// Starts the log, with the present facts.
    pub(super) async fn start(&self) -> anyhow::Result<()> {
        self.sql(include_str!("observer.sql")).await.map(drop)
    }

    /// Reads the log, and checks every commit.
    pub(super) async fn check(&self, budgets: Budgets) -> anyhow::Result<Observed> {
        let text = self.sql(READ).await?;
        let lines: Vec<Line> = text
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("the fact {line}")))
            .collect::<anyhow::Result<_>>()?;
        Ok(check(&lines, budgets))
    }

    async fn sql(&self, sql: &str) -> anyhow::Result<String> {
        let mut psql = Command::new("psql")
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &self.database])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start psql")?;
        let mut input = psql.stdin.take().context("the input of psql")?;
        input.write_all(sql.as_bytes()).await?;
        drop(input);
        let done = psql.wait_with_output().await?;
        let error = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "psql: {error}");
        Ok(String::from_utf8(done.stdout)?)
    }
}

/// A node as the observer sees it.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: String,
    rack: String,
    state: Option<State>,
    held: bool,
    served: bool,
    bound: bool,
}

impl Seen {
    fn serves(&self) -> bool {
        self.bound && self.state == Some(State::InService) && !self.held
    }

    /// A claim that has once been in service and is not now.
    fn is_out(&self) -> bool {
        self.bound && self.served && !self.serves()
    }

    /// Outside service by an act, and not by a failure.
    fn is_taken(&self) -> bool {
        self.is_out()
            && !matches!(
                self.state,
                Some(State::Failed | State::Quarantined | State::Repairing)
            )
    }
}

/// The facts of all nodes after a commit.
#[derive(Default)]
struct World {
    nodes: BTreeMap<Uuid, Seen>,
    out: BTreeMap<String, BTreeSet<Uuid>>,
    /// Nodes of each rack.
    sizes: BTreeMap<String, usize>,
    halted: bool,
}

impl World {
    fn apply(&mut self, fact: &Fact) -> Option<Uuid> {
        let id = match fact {
            Fact::Place { id, name, rack } => {
                let node = self.nodes.entry(*id).or_default();
                (node.name, node.rack) = (name.clone(), rack.clone());
                *self.sizes.entry(rack.clone()).or_default() += 1;
                *id
            }
            Fact::Node { id, state, held } => {
                let node = self.nodes.entry(*id).or_default();
                (node.state, node.held) = (Some(*state), *held);
                *id
            }
            Fact::Claim {
                node,
                served,
                bound,
            } => {
                let id = (*node)?;
                let node = self.nodes.entry(id).or_default();
                (node.served, node.bound) = (*served, *bound);
                id
            }
            Fact::Rollout(state) => {
                self.halted = state == "halted";
                return None;
            }
        };
        let node = &self.nodes[&id];
        let rack = self.out.entry(node.rack.clone()).or_default();
        match node.is_out() {
            true => rack.insert(id),
            false => rack.remove(&id),
        };
        Some(id)
    }

    fn count_out(&self) -> usize {
        self.out.values().map(BTreeSet::len).sum()
    }
}

/// Checks each transaction by the facts before and after.
fn check(lines: &[Line], budgets: Budgets) -> Observed {
    let (mut world, mut found) = (World::default(), Observed::default());
    for (at, facts) in lines.chunk_by(|one, next| one.tx == next.tx).enumerate() {
        let mut before: BTreeMap<Uuid, bool> = BTreeMap::new();
        let was_halted = world.halted;
        for line in facts {
            if let Fact::Node { id, .. } | Fact::Claim { node: Some(id), .. } = &line.fact {
                let serves = world.nodes.get(id).is_some_and(Seen::serves);
                before.entry(*id).or_insert(serves);
            }
            world.apply(&line.fact);
        }
        // The first transaction holds the facts of the start.
        if at == 0 {
            continue;
        }
        found.commits += 1;
        let out = world.count_out();
        found.most_out = found.most_out.max(out);
        for (id, served) in before {
            let node = &world.nodes[&id];
            let of_rack = world.out.get(&node.rack).map_or(0, BTreeSet::len);
            found.most_out_of_a_rack = found.most_out_of_a_rack.max(of_rack);
            if !served || !node.is_taken() {
                continue;
            }
            found.taken += 1;
            let name = &node.name;
            if out > budgets.pool {
                let most = budgets.pool;
                found.violations.push(format!(
                    "{name} is taken: {out} nodes of the pool are out, of {most}"
                ));
            }
            let rack = &node.rack;
            let size = world.sizes.get(rack).copied().unwrap_or_default();
            let most = (size * budgets.rack_percent / 100).max(1);
            if of_rack > most {
                found.violations.push(format!(
                    "{name} is taken: {of_rack} nodes of {rack} are out, of {most}"
                ));
            }
            if was_halted && world.halted {
                found
                    .violations
                    .push(format!("{name} is taken while the rollout is halted"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const BUDGETS: Budgets = Budgets {
        pool: 2,
        rack_percent: 50,
    };

    fn line(tx: u32, fact: Value) -> Line {
        Line {
            tx: tx.to_string(),
            fact: serde_json::from_value(fact).expect("a fact"),
        }
    }

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn node(tx: u32, number: u128, state: &str) -> Line {
        line(
            tx,
            json!({ "node": { "id": id(number), "state": state, "held": false } }),
        )
    }

    /// Four nodes in service, two in each rack; then further transactions.
    fn observe(later: Vec<Line>) -> Observed {
        let mut lines = Vec::new();
        for number in 1..=4_u128 {
            let rack = format!("r{}", number.div_ceil(2));
            let place = json!({ "id": id(number), "name": format!("n{number}"), "rack": rack });
            let claim = json!({ "node": id(number), "served": true, "bound": true });
            lines.push(line(1, json!({ "place": place })));
            lines.push(line(1, json!({ "claim": claim })));
            lines.push(node(1, number, "in_service"));
        }
        lines.extend(later);
        check(&lines, BUDGETS)
    }

    #[test]
    fn a_commit_within_the_budgets_breaks_no_rule() {
        let found = observe(vec![
            node(2, 1, "draining"),
            node(3, 3, "draining"),
            node(4, 1, "in_service"),
            node(5, 2, "draining"),
        ]);
        let expected = Observed {
            commits: 4,
            taken: 3,
            most_out: 2,
            most_out_of_a_rack: 1,
            violations: Vec::new(),
        };
        assert_eq!(found, expected);
        found.check().expect("the run goes on");
    }

    #[test]
    fn a_commit_beyond_a_budget_or_under_a_halt_is_found() {
        let of_rack = observe(vec![node(2, 1, "draining"), node(3, 2, "draining")]);
        assert_eq!(
            of_rack.violations,
            ["n2 is taken: 2 nodes of r1 are out, of 1"]
        );
        let ended = of_rack.check().expect_err("the run ends");
        assert!(ended.to_string().contains("n2 is taken"), "{ended}");
        let of_pool = observe(vec![
            node(2, 1, "failed"),
            node(3, 2, "failed"),
            node(4, 3, "draining"),
        ]);
        assert_eq!(
            of_pool.violations,
            ["n3 is taken: 3 nodes of the pool are out, of 2"]
        );
        let halted = observe(vec![
            line(2, json!({ "rollout": "halted" })),
            node(3, 1, "draining"),
        ]);
        assert_eq!(
            halted.violations,
            ["n1 is taken while the rollout is halted"]
        );
    }
}
