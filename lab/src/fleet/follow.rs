//! Follows the state of every node from the event history alone, as any other client can. Every
//! transition in the history is checked on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use muster_api::client::Client;
use muster_api::events::Event;
use muster_core::lifecycle::state::State;
use muster_core::lifecycle::table;
use uuid::Uuid;

use super::Until;

const PAGE: &str = "1000";
/// Time until an unanswered request is sent again. The server may have been killed before receiving
/// the request.
const AGAIN: Duration = Duration::from_secs(3);

/// The declared fleet, as the start of following.
pub(super) struct Declared {
    /// Sequence number of the last event before the declaration.
    pub before: i64,
    pub ids: BTreeMap<Uuid, String>,
}

/// A request of the operators for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Want {
    pub node: String,
    pub what: Wanted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Claim,
    Release,
    /// A wipe if the disks of a quarantined node may hold data, else a recovery.
    LeaveQuarantine,
    Ask(&'static str),
}

/// A phase of a node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// From the declaration until the node can be claimed.
    Accept,
    /// From the claim until the node is in service.
    Serve,
    /// From the release until the node can be claimed again.
    Release,
}

/// Start and end of a phase of a node's life, by the server's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lap {
    pub phase: Phase,
    pub from: Timestamp,
    pub to: Timestamp,
}

/// A node, as described by the history.
pub(super) struct Node {
    pub name: String,
    state: State,
    claimed: bool,
    releasing: bool,
    pub laps: Vec<Lap>,
    begun: Option<(Phase, Timestamp)>,
    /// A step failed, was retried or changed its agent. The node's durations then say little about
    /// queueing, and the report leaves the node out.
    pub disturbed: bool,
    asked: Option<Instant>,
    pub done: bool,
}

/// All nodes of the fleet.
pub(super) struct Follower {
    until: Until,
    after: i64,
    pub nodes: BTreeMap<Uuid, Node>,
    pub transitions: u64,
    pub events: u64,
    pub failed_steps: u64,
    /// Illegal transitions found in the history, as sentences.
    pub violations: BTreeSet<String>,
}

impl Follower {
    pub(super) fn new(until: Until) -> Self {
        Self {
            until,
            after: 0,
            nodes: BTreeMap::new(),
            transitions: 0,
            events: 0,
            failed_steps: 0,
            violations: BTreeSet::new(),
        }
    }

    pub(super) fn know(&mut self, declared: Declared) {
        self.after = declared.before;
        self.nodes = declared
            .ids
            .into_iter()
            .map(|(id, name)| (id, Node::new(name)))
            .collect();
        if self.until == Until::Declared {
            self.nodes.values_mut().for_each(|node| node.done = true);
        }
    }

    /// Reads the history up to its end. An unreachable server is no error, because the next call
    /// continues from the same event.
    pub(super) async fn read(&mut self, client: &Client) -> anyhow::Result<()> {
        loop {
            let events = match client.events(self.after, &[("limit", PAGE)]).await {
                Ok(events) => events,
                Err(error) if error.away() => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let full = events.items.len() == 1000;
            self.after = events.last_seq;
            events.items.iter().for_each(|event| self.take(event));
            if !full {
                return Ok(());
            }
        }
    }

    fn take(&mut self, event: &Event) {
        let Some(node) = event.node.and_then(|id| self.nodes.get_mut(&id)) else {
            return;
        };
        self.events += 1;
        match event.kind.as_str() {
            "node.registered" => node.begun = Some((Phase::Accept, event.at)),
            "claim.created" => {
                node.claimed = true;
                node.begun = Some((Phase::Serve, event.at));
            }
            "claim.releasing" => {
                node.releasing = true;
                node.begun = Some((Phase::Release, event.at));
            }
            "step.failed" => {
                node.disturbed = true;
                self.failed_steps += 1;
            }
            "step.retried" | "step.stale" | "job.lease_expired" => node.disturbed = true,
            "node.advanced" => {
                self.transitions += 1;
                if let Err(violation) = node.advanced(event, self.until) {
                    self.violations.insert(violation);
                }
            }
            _ => {}
        }
    }

    pub(super) fn done(&self) -> u64 {
        self.nodes.values().filter(|node| node.done).count() as u64
    }

    /// Returns the operators' next requests. A request for a node is repeated only after 3 s
    /// without a transition.
    pub(super) fn wanted(&mut self) -> Vec<Want> {
        let mut wants = Vec::new();
        for node in self.nodes.values_mut().filter(|node| !node.done) {
            if let Some(what) = node.wanted()
                && node.asked.is_none_or(|asked| asked.elapsed() > AGAIN)
            {
                node.asked = Some(Instant::now());
                wants.push(Want {
                    node: node.name.clone(),
                    what,
                });
            }
        }
        wants
    }

    /// Returns the number of unfinished nodes in each state, as text for the progress line.
    pub(super) fn line(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for node in self.nodes.values().filter(|node| !node.done) {
            *counts.entry(node.state.as_str()).or_default() += 1;
        }
        let counts: Vec<String> = counts
            .into_iter()
            .map(|(state, count)| format!("{count} {state}"))
            .collect();
        counts.join(", ")
    }

    /// Returns the state of the first five unfinished nodes, each with the reason for its wait.
    pub(super) async fn stuck(&self, client: &Client) -> String {
        let mut told = Vec::new();
        for node in self.nodes.values().filter(|node| !node.done).take(5) {
            let why = client
                .node_why(&node.name)
                .await
                .map_or_else(|error| error.to_string(), |why| why.sentence);
            told.push(format!("{} is {}: {why}", node.name, node.state));
        }
        told.join("; ")
    }
}

impl Node {
    fn new(name: String) -> Self {
        Self {
            name,
            state: State::Discovered,
            claimed: false,
            releasing: false,
            laps: Vec::new(),
            begun: None,
            disturbed: false,
            asked: None,
            done: false,
        }
    }

    /// Applies a transition to the node, and closes a finished phase. Returns a sentence for an
    /// illegal transition.
    fn advanced(&mut self, event: &Event, until: Until) -> Result<(), String> {
        let word = |member: &str| event.detail[member].as_str().unwrap_or_default().to_owned();
        let from = std::mem::replace(
            &mut self.state,
            word("to").parse().map_err(|_| event.summary.clone())?,
        );
        self.asked = None;
        match (self.state, self.begun) {
            (State::Available, Some((phase @ (Phase::Accept | Phase::Release), began)))
            | (State::InService, Some((phase @ Phase::Serve, began))) => {
                self.laps.push(Lap {
                    phase,
                    from: began,
                    to: event.at,
                });
                self.begun = None;
            }
            _ => {}
        }
        self.done |= match until {
            Until::Declared => true,
            Until::Available => self.state == State::Available,
            Until::InService => self.state == State::InService,
            Until::Released => self.state == State::Available && self.releasing,
        };
        if word("from") != from.as_str() {
            return Err(format!(
                "{} moved from {}, and was {from}",
                self.name,
                word("from")
            ));
        }
        match table::legal(from, self.state) {
            true => Ok(()),
            false => Err(format!("{} moved from {from} to {}", self.name, self.state)),
        }
    }

    fn wanted(&self) -> Option<Wanted> {
        match self.state {
            State::Available if !self.claimed => Some(Wanted::Claim),
            State::InService if !self.releasing => Some(Wanted::Release),
            State::Failed => Some(Wanted::Ask("retry")),
            State::Quarantined => Some(Wanted::LeaveQuarantine),
            _ => None,
        }
    }
}
