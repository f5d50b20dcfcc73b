//! `muster node`.

use std::time::Duration;

use clap::{Args, Subcommand};
use muster_api::client::ClientError;
use muster_api::nodes::{NodeFacts, NodeSpec, NodeStatus};
use muster_core::firmware::BmcInventory;
use tokio::time::Instant;

use super::exit::{Ended, Exit};
use super::holds::{self, HoldArgs};
use super::node_requests::{Act, MaintainArgs};
use super::output::{clean, duration};
use super::parts::{self, ReplaceArgs};
use super::place::{self, AdoptArgs, MatchArgs, MoveArgs, RenameArgs};
use super::session::Session;
use super::{cabling, consoles, events, gate_runs, node_requests, recoveries};
use crate::duration::parse_duration;

/// Subcommands of nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// Show the reason why a node waits, in one sentence
    Why { node: String },
    /// Follow the events of a node
    Watch(WatchArgs),
    /// Show the timeline of a node, with the duration of each step
    Timeline { node: String },
    /// Show the facts found by the inspection
    Facts { node: String },
    /// Show the parts of a node by serial, current and former
    Parts { node: String },
    /// Show the declared cables of a node and the observed ports
    Cabling { node: String },
    /// Show the latest gate runs, as `muster gate_run list NODE`
    Gates(gate_runs::RunsArgs),
    /// List or follow the events of a node
    Events {
        node: String,
        #[command(flatten)]
        reading: events::Reading,
    },
    /// Show the serial console of a node
    Console {
        node: String,
        /// Follow new output
        #[arg(short, long)]
        follow: bool,
    },
    /// Show the recoveries of a node, with the result of each rung
    Recoveries { node: String },
    /// Stop a recovery after the current rung
    StopRecovery { node: String },
    /// Save a report for the maker of a part: identity, serials, gate runs with evidence,
    /// recoveries, console
    Rma {
        node: String,
        /// Output file. Default: `rma-NODE.tar.zst` in the current folder
        #[arg(long, value_name = "FILE")]
        out: Option<std::path::PathBuf>,
    },
    #[command(flatten)]
    Act(Act),
    /// Adopt a running machine: without reboot, and without changes beyond the plan
    Adopt(AdoptArgs),
    /// Match a discovered machine with a declared node. The node takes over MACs, facts and parts;
    /// the discovered record is removed
    Match(MatchArgs),
    /// Reserve a node for a person
    Maintain(MaintainArgs),
    /// Record replaced parts. The node is inspected for the new serials
    ReplaceParts(ReplaceArgs),
    /// Rename a node without a claim
    Rename(RenameArgs),
    /// Move a node to another rack or unit
    Move(MoveArgs),
    /// Put a node under a legal hold: records and events of the node stay at any age, and the node
    /// cannot be deleted
    HoldRecords(HoldArgs),
    /// End the legal hold of a node
    ReleaseRecords(HoldArgs),
}

/// The node to follow.
#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    node: String,
    /// Stop in this state. `failed` and `quarantined` stop as well, with exit code 9
    #[arg(long)]
    until: Option<String>,
    /// Time limit for the state
    #[arg(long, default_value = "2h", value_parser = parse_duration)]
    timeout: Duration,
}

pub(super) async fn run(session: &Session, verb: NodeVerb) -> anyhow::Result<()> {
    let client = &session.client;
    match verb {
        NodeVerb::Parts { node } => parts::list(session, &node).await,
        NodeVerb::Cabling { node } => cabling::of_node(session, &node).await,
        NodeVerb::ReplaceParts(args) => parts::replace(session, args).await,
        NodeVerb::Adopt(args) => place::adopt(session, args).await,
        NodeVerb::Match(args) => place::bind(session, args).await,
        NodeVerb::Rename(args) => place::rename(session, args).await,
        NodeVerb::Move(args) => place::shift(session, args).await,
        NodeVerb::HoldRecords(args) => holds::hold(session, args).await,
        NodeVerb::ReleaseRecords(args) => holds::release(session, &args).await,
        NodeVerb::Maintain(args) => node_requests::maintain(session, args).await,
        NodeVerb::Why { node } => {
            let why = client.node_why(&node).await?;
            session
                .output
                .print_lines(&why, || vec![why.sentence.clone()])
        }
        NodeVerb::Watch(args) => watch(session, &args).await,
        NodeVerb::Timeline { node } => timeline(session, &node).await,
        NodeVerb::Facts { node } => {
            let facts = client.node_facts(&node).await?;
            session.output.print_lines(&facts, || fact_lines(&facts))
        }
        NodeVerb::Gates(args) => gate_runs::list(session, &args).await,
        NodeVerb::Events { node, reading } => events::show(session, Some(&node), &reading).await,
        NodeVerb::Console { node, follow } => consoles::show(session, &node, follow).await,
        NodeVerb::Recoveries { node } => recoveries::list(session, &node).await,
        NodeVerb::Rma { node, out } => recoveries::save(session, &node, out).await,
        NodeVerb::StopRecovery { node } => recoveries::stop(session, &node).await,
        NodeVerb::Act(act) => node_requests::run(session, act).await,
    }
}

fn fact_lines(seen: &NodeFacts) -> Vec<String> {
    let facts = &seen.facts;
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".into());
    let mut lines = vec![
        format!(
            "observed {} in the {} system",
            seen.observed_at, seen.source
        ),
        format!(
            "machine  {} {}, serial {}",
            text(&facts.smbios.manufacturer),
            text(&facts.smbios.product),
            text(&facts.smbios.serial)
        ),
        format!("memory   {} MiB", facts.memory.total_bytes >> 20),
    ];
    lines.extend(facts.cpus.iter().map(|cpu| {
        format!(
            "cpu      {} ({} cores, {} threads)",
            cpu.model, cpu.cores, cpu.threads
        )
    }));
    lines.extend(
        facts
            .gpus
            .iter()
            .map(|gpu| format!("gpu      {} at {}", text(&gpu.model), gpu.pci_address)),
    );
    lines.extend(facts.disks.iter().map(|disk| {
        format!(
            "disk     {} {:?} {} GiB, serial {}",
            disk.name,
            disk.transport,
            disk.size_bytes >> 30,
            text(&disk.serial)
        )
    }));
    lines.extend(facts.nics.iter().map(|nic| {
        format!(
            "nic      {} {} {}",
            nic.name,
            nic.mac,
            if nic.link_up { "up" } else { "down" }
        )
    }));
    if let Some(bmc) = &seen.bmc {
        let BmcInventory {
            firmware,
            bios,
            unread,
        } = &bmc.inventory;
        lines.push(format!(
            "its BMC said {}, the same since {}",
            bmc.observed_at, bmc.since
        ));
        lines.extend(
            firmware
                .iter()
                .map(|seen| format!("firmware {} {}", seen.id, seen.version)),
        );
        lines.push(format!(
            "bios     {} settings (-o json has them)",
            bios.len()
        ));
        lines.extend(unread.iter().map(|why| format!("unknown  {why}")));
    }
    lines
}

async fn timeline(session: &Session, node: &str) -> anyhow::Result<()> {
    let timeline = session.client.node_timeline(node).await?;
    session.output.print_lines(&timeline, || {
        let line = |item: &muster_api::nodes::TimelineEntry| {
            let took = item
                .duration_ms
                .map(|took| format!(" ({})", duration(took)))
                .unwrap_or_default();
            format!("{}  {}{took}", item.at.strftime("%F %T"), item.summary)
        };
        timeline.items.iter().map(line).collect()
    })
}

/// Prints new events; an unreachable server is retried.
/// The wait of a long poll for events.
const LONGEST_WAIT_S: u64 = 20;

async fn watch(session: &Session, args: &WatchArgs) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.timeout;
    let mut after = 0;
    loop {
        let node = match session
            .client
            .get_with_any_spec::<NodeSpec>(&args.node)
            .await
        {
            Ok(node) => node,
            Err(error) if error.away() && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        // The state is read before waiting, because the node may already be there.
        let over = args
            .until
            .as_deref()
            .map_or(Ok(false), |until| reached(&node.status, until));
        let left = deadline
            .saturating_duration_since(Instant::now())
            .as_secs()
            .min(LONGEST_WAIT_S);
        let wait_s = if after == 0 || !matches!(over, Ok(false)) {
            0
        } else {
            left
        };
        let (id, wait) = (node.id.to_string(), format!("{wait_s}s"));
        match session
            .client
            .events(after, &[("node", &id), ("wait", &wait), ("limit", "1000")])
            .await
        {
            Ok(events) => {
                for event in &events.items {
                    match session.output.is_table() {
                        true => {
                            print_line!("{}  {}", event.at.strftime("%F %T"), clean(&event.summary))
                        }
                        false => print_line!("{}", serde_json::to_string(event)?),
                    }
                }
                after = events.last_seq.max(1);
            }
            Err(error) if error.away() => tokio::time::sleep(Duration::from_secs(1)).await,
            Err(error) => return Err(error.into()),
        }
        if over? {
            return Ok(());
        }
        if args.until.is_some() && Instant::now() >= deadline {
            return Err(ClientError::TimedOut(node.status.why.sentence).into());
        }
    }
}

fn reached(status: &NodeStatus, until: &str) -> anyhow::Result<bool> {
    let state = status.state.as_str();
    match state {
        _ if state == until => Ok(true),
        "failed" | "quarantined" | "retired" => Err(Ended {
            exit: Exit::EndedBadly,
            told: status.why.sentence.clone(),
        }
        .into()),
        _ => Ok(false),
    }
}
