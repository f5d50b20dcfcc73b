//! Muster's own share of a node's time: the parts of an operation without work by firmware, kernel,
//! disk, package tool or gates.
//!
//! The share is computed from the API records of a run. Where a record lacks the time at which the
//! machine was ready, the longest possible time is counted. Time with work by other parties is
//! excluded:
//!
//! * the machine's work between an act and its report
//! * `write_image` and `wipe` after the permit is redeemed
//! * `converge` after the first log line
//! * Slurm's steps
//! * actions by a person
//! * the wait for the rack's power
//!
//! The time of muster-node for reading hardware and packages (`inventory`, `recheck`) is shown
//! beside the sum.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_api::client::Client;
use muster_api::events::Event;
use muster_api::gate_runs::GateRun;
use muster_api::operations::{Operation, OperationLogLine, Step};
use muster_core::lifecycle::steps::Step as Kind;
use muster_core::wire::noticed::Noticed;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

/// Most pages read of a list; a run has only a few.
const PAGES: usize = 50;

/// The intervals in which Muster was the party to act, in the order of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HandOver {
    /// From the request to the first order of a step: the engine.
    Asked,
    /// From the end of a step to the order of the next step: the engine.
    Ended,
    /// From the order of a step to its start: the agent's lease.
    Ordered,
    /// From the start of a step to the first act on the machine: BMC, SSH, the permit.
    Begun,
    /// A step of gates minus the gates' run time: SSH, start of muster-node, transfer of the
    /// result.
    Gates,
    /// From the live image's report to the end of the step: SSH, the identity check.
    Reported,
    /// From the last failed connection to a restarted system to the first successful connection.
    /// The system was up and unnoticed for at most so long.
    Noticed,
    /// From the first connection to the open session: key exchange, certificate, the system's own
    /// login.
    LoggedIn,
    /// From the end of the last step to the end of the operation.
    Closed,
}

impl HandOver {
    pub(super) const ALL: [Self; 9] = [
        Self::Asked,
        Self::Ended,
        Self::Ordered,
        Self::Begun,
        Self::Gates,
        Self::Reported,
        Self::Noticed,
        Self::LoggedIn,
        Self::Closed,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Ended => "ended",
            Self::Ordered => "ordered",
            Self::Begun => "begun",
            Self::Gates => "gates",
            Self::Reported => "reported",
            Self::Noticed => "noticed",
            Self::LoggedIn => "log-in",
            Self::Closed => "closed",
        }
    }
}

/// Muster's share of an operation, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) node: String,
    pub(super) operation: String,
    /// Each interval with its length and the step started or ended by the interval.
    pub(super) hand_overs: Vec<(HandOver, String, i64)>,
    /// Total time of the steps `inventory` and `recheck`, excluded from the sum.
    pub(super) looks: i64,
    /// From the request to the end of the operation.
    pub(super) took: i64,
}

impl Share {
    pub(super) fn of(&self, kind: HandOver) -> i64 {
        self.hand_overs
            .iter()
            .filter(|(own, ..)| *own == kind)
            .map(|(.., ms)| ms)
            .sum()
    }

    pub(super) fn sum(&self) -> i64 {
        self.hand_overs.iter().map(|(.., ms)| ms).sum()
    }
}

/// The API records of a run.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Recorded {
    /// Operations of every node, oldest first.
    operations: Vec<Operation>,
    events: Vec<Event>,
    gate_runs: Vec<GateRun>,
    log: Vec<OperationLogLine>,
}

impl Recorded {
    /// Reads all records of the given nodes.
    pub(super) async fn read(client: &Client, nodes: &[&str]) -> anyhow::Result<Self> {
        let mut run = Self::default();
        for node in nodes {
            let mut page = client
                .list_operations(&[("node", node), ("limit", "200")])
                .await?;
            page.items.reverse();
            run.gate_runs
                .extend(client.node_gate_runs(node).await?.items);
            for operation in &page.items {
                run.log
                    .extend(client.operation_log(operation.id, 0).await?.items);
            }
            run.operations.extend(page.items);
            let mut after = 0;
            for _ in 0..PAGES {
                let events = client.events(after, &[("node", node)]).await?;
                if events.items.is_empty() {
                    break;
                }
                run.events.extend(events.items);
                after = events.last_seq;
            }
        }
        Ok(run)
    }

    /// Returns the share of each successful operation, oldest first.
    pub(super) fn shares(&self) -> Vec<Share> {
        self.operations
            .iter()
            .filter_map(|operation| self.share(operation))
            .collect()
    }

    fn share(&self, operation: &Operation) -> Option<Share> {
        let ended = operation
            .finished_at
            .filter(|_| operation.error.is_none())?;
        let node = operation
            .target
            .as_ref()
            .map(|target| target.name.clone())
            .unwrap_or_default();
        let mut share = Share {
            node,
            operation: operation.kind.clone(),
            ..Share::default()
        };
        share.took = ms(operation.created_at, ended);
        let mut before = None;
        for step in &operation.steps {
            let from = before.unwrap_or_else(|| self.free_to_start(operation, step));
            let kind = if before.is_some() {
                HandOver::Ended
            } else {
                HandOver::Asked
            };
            share
                .hand_overs
                .push((kind, step.step.clone(), ms(from, step.created_at)));
            self.within(step, &mut share);
            before = step.finished_at;
        }
        let last = operation.steps.last()?;
        share
            .hand_overs
            .push((HandOver::Closed, last.step.clone(), ms(before?, ended)));
        Some(share)
    }

    /// Returns the earliest possible time of the first order. A power-on may wait for the rack's
    /// power, freed when a step of another node ends.
    fn free_to_start(&self, operation: &Operation, step: &Step) -> Timestamp {
        let waits = step.step.parse::<Kind>().is_ok_and(Kind::powers_on);
        let others = self
            .operations
            .iter()
            .filter(|other| other.target != operation.target);
        let ends = others
            .flat_map(|other| &other.steps)
            .filter_map(|step| step.finished_at);
        let freed = ends
            .filter(|end| waits && (operation.created_at..=step.created_at).contains(end))
            .max();
        freed.unwrap_or(operation.created_at)
    }

    fn within(&self, step: &Step, share: &mut Share) {
        let (Some(began), Some(ended)) = (step.started_at, step.finished_at) else {
            return;
        };
        let mut add = |kind, ms: i64| share.hand_overs.push((kind, step.step.clone(), ms));
        // A later round keeps the order time of the first round, because the time of the second
        // queueing is not stored.
        if step.round == 1 {
            add(HandOver::Ordered, ms(step.created_at, began));
        }
        if let Some(acted) = self.first_act(step, began) {
            add(HandOver::Begun, ms(began, acted));
        }
        let mut own = self
            .gate_runs
            .iter()
            .filter(|run| step.step.starts_with("gates") && self.node(step) == Some(run.node));
        if let Some(run) = own.rfind(|run| (began..=ended).contains(&run.finished_at)) {
            let gates: u64 = run.results.iter().map(|result| result.duration_ms).sum();
            add(
                HandOver::Gates,
                ms(began, ended) - i64::try_from(gates).unwrap_or(i64::MAX),
            );
        }
        let reports = self.of(step).filter(|event| event.kind == "boot.report");
        if let Some(reported) = reports
            .map(|event| event.at)
            .filter(|at| (began..=ended).contains(at))
            .last()
        {
            add(HandOver::Reported, ms(reported, ended));
        }
        let said = self.log.iter().filter(|line| line.job == step.job);
        if let Some(Noticed { late, log_in }) =
            said.filter_map(|line| line.text.parse().ok()).next_back()
        {
            for (kind, took) in [(HandOver::Noticed, late), (HandOver::LoggedIn, log_in)] {
                add(kind, i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
            }
        }
        if matches!(step.step.as_str(), "inventory" | "recheck") {
            share.looks += ms(began, ended);
        }
    }

    /// Returns the time of the first act of a step. The act is the power act, else the redeemed
    /// permit to destroy, else, for `converge`, the first log line.
    fn first_act(&self, step: &Step, began: Timestamp) -> Option<Timestamp> {
        let first = |kind: &str| {
            let own = self.events.iter().filter(|event| event.kind == kind);
            let own = own.filter(|event| event.detail["job"] == json!(step.job));
            own.map(|event| event.at).find(|at| *at >= began)
        };
        let said = || {
            let own = self
                .log
                .iter()
                .filter(|line| line.job == step.job && step.step == "converge");
            own.map(|line| line.at).find(|at| *at >= began)
        };
        first("act.started")
            .or_else(|| first("permit.redeemed"))
            .or_else(said)
    }

    fn node(&self, step: &Step) -> Option<Uuid> {
        let operation = self
            .operations
            .iter()
            .find(|operation| operation.steps.iter().any(|own| own.job == step.job));
        Some(operation?.target.as_ref()?.id)
    }

    /// Returns the events of the step's node.
    fn of(&self, step: &Step) -> impl Iterator<Item = &Event> {
        let node = self.node(step);
        self.events
            .iter()
            .filter(move |event| event.node.is_some() && event.node == node)
    }
}

/// Returns the milliseconds between two times, at least zero. The order may be reversed, because
/// the times may come from two transactions.
fn ms(from: Timestamp, to: Timestamp) -> i64 {
    i64::try_from(to.duration_since(from).as_millis())
        .unwrap_or(i64::MAX)
        .max(0)
}

/// Returns the shares as JSON for other programs: milliseconds per interval and in total.
pub(super) fn told(shares: &[Share]) -> Value {
    let told = shares.iter().map(|share| {
        let parts: BTreeMap<_, _> = HandOver::ALL.into_iter().map(|kind| (kind.name(), share.of(kind))).collect();
        json!({ "node": share.node, "operation": share.operation, "parts": parts, "sum": share.sum(), "looks": share.looks, "took": share.took })
    });
    told.collect()
}

/// Prints the shares as a table, and the longest interval of each node.
pub(super) fn print(shares: &[Share]) {
    println!(
        "\n=== Muster's own share, in seconds (lab/src/demo/overhead.rs says what is counted)"
    );
    let heads: String = HandOver::ALL
        .iter()
        .map(|kind| format!("{:>9}", kind.name()))
        .collect();
    println!(
        "{:<5}{:<10}{heads}{:>9}{:>9}{:>9}",
        "node", "operation", "sum", "looks", "took"
    );
    let cell = |ms: i64| format!("{:>9.2}", ms as f64 / 1000.0);
    let mut largest: BTreeMap<&str, (HandOver, &str, i64)> = BTreeMap::new();
    for share in shares {
        let cells: String = HandOver::ALL
            .iter()
            .map(|kind| cell(share.of(*kind)))
            .collect();
        let (sum, looks, took) = (cell(share.sum()), cell(share.looks), cell(share.took));
        println!(
            "{:<5}{:<10}{cells}{sum}{looks}{took}",
            share.node, share.operation
        );
        for (kind, step, ms) in &share.hand_overs {
            let most = largest.entry(&share.node).or_insert((*kind, step, *ms));
            if *ms > most.2 {
                *most = (*kind, step, *ms);
            }
        }
    }
    for (node, (kind, step, ms)) in largest {
        println!(
            "{node}: the longest is {} of {step}, {:.2} s",
            kind.name(),
            ms as f64 / 1000.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of two nodes from a run with kills of the agent, the server and the database.
    fn recorded() -> Recorded {
        serde_json::from_str(include_str!("recorded.json")).unwrap()
    }

    fn share<'a>(shares: &'a [Share], node: &str, operation: &str) -> &'a Share {
        shares
            .iter()
            .find(|share| share.node == node && share.operation == operation)
            .unwrap()
    }

    #[test]
    fn every_hand_over_of_a_recorded_claim_is_counted_once() {
        let shares = recorded().shares();
        let claim = share(&shares, "n1", "claim");
        let counted: Vec<(HandOver, i64)> = HandOver::ALL
            .into_iter()
            .map(|kind| (kind, claim.of(kind)))
            .collect();
        let expected = [
            (HandOver::Asked, 13),
            (HandOver::Ended, 138),
            (HandOver::Ordered, 170),
            (HandOver::Begun, 6535),
            (HandOver::Gates, 6001),
            (HandOver::Reported, 828),
            (HandOver::Noticed, 0),
            (HandOver::LoggedIn, 0),
            (HandOver::Closed, 5),
        ];
        assert_eq!(counted, expected);
        assert_eq!(claim.sum(), counted.iter().map(|(_, ms)| ms).sum::<i64>());
        assert_eq!(claim.looks, 2747, "the recheck, which is beside the sum");
    }

    /// Two nodes run gates at the same time.
    #[test]
    fn another_nodes_gates_say_nothing_of_ours() {
        let mut run = recorded();
        let before = share(&run.shares(), "n1", "claim").of(HandOver::Gates);
        let mut other = run.gate_runs.clone();
        for gates in &mut other {
            gates.node = Uuid::nil();
            gates.results.clear();
        }
        run.gate_runs.extend(other.clone());
        run.gate_runs.splice(0..0, other);
        assert_eq!(
            share(&run.shares(), "n1", "claim").of(HandOver::Gates),
            before
        );
    }

    #[test]
    fn the_wait_for_the_racks_power_is_not_ours() {
        let shares = recorded().shares();
        let accept = share(&shares, "n3", "accept");
        // Asked at 18:21:42.293 and ordered at 18:23:16.331. The power was free at 18:23:16.313,
        // when n1 had been powered off.
        assert_eq!(accept.of(HandOver::Asked), 18);
    }

    #[test]
    fn a_look_that_came_late_is_read_from_the_agents_words() {
        let mut run = recorded();
        let claim = run
            .operations
            .iter()
            .find(|operation| operation.kind == "claim")
            .unwrap();
        let reboot = claim
            .steps
            .iter()
            .find(|step| step.step == "reboot")
            .unwrap();
        let ms = std::time::Duration::from_millis;
        let text = Noticed {
            late: ms(400),
            log_in: ms(1400),
        }
        .to_string();
        let at = reboot.finished_at.unwrap();
        run.log.push(OperationLogLine {
            id: 1,
            job: reboot.job,
            step: "reboot".into(),
            attempt: 1,
            at,
            text,
        });
        let shares = run.shares();
        let claim = share(&shares, "n1", "claim");
        assert_eq!(
            (claim.of(HandOver::Noticed), claim.of(HandOver::LoggedIn)),
            (400, 1400)
        );
    }
}
