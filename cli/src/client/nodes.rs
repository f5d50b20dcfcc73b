//! `muster node`.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use jiff::SignedDuration;
use muster_api::client::ClientError;
use muster_api::gate_runs::GateRun;
use muster_api::nodes::{Node, NodeAction, NodeFacts, NodeSpec};
use tokio::time::Instant;

use super::acting::{ActArgs, begun};
use super::output::{Rows, age, clean, duration};
use super::parts::{self, ReplaceArgs};
use super::place::{self, AdoptArgs, MoveArgs, RenameArgs};
use super::progress::parse_duration;
use super::{Session, consoles};

/// What can be asked of nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// List nodes.
    List {
        /// Such as `state=in_service AND rack~"r1*" AND label.gpu=h200`.
        #[arg(short, long)]
        filter: Option<String>,
    },
    /// Show one node.
    Get { node: String },
    /// Say why a node is not moving, in one sentence.
    Why { node: String },
    /// Follow what happens to a node.
    Watch(WatchArgs),
    /// Show what led a node to where it is, with the time each step took.
    Timeline { node: String },
    /// Show what inspection saw.
    Facts { node: String },
    /// Show the parts of a node by serial: those that are in it, and those that were.
    Parts { node: String },
    /// Show the latest gate runs.
    Gates { node: String },
    /// Show what a node wrote on its serial console.
    Console {
        node: String,
        /// Go on as it writes.
        #[arg(short, long)]
        follow: bool,
    },
    /// Accept a discovered node: it is inspected.
    Accept(ActArgs),
    /// Take a machine that runs already into service as it is: no reboot, no change but what the plan names.
    Adopt(AdoptArgs),
    /// Turn a discovered node away.
    Reject(ActArgs),
    /// Inspect an available node again.
    Inspect(ActArgs),
    /// Try a failed phase again, from its entry.
    Retry(ActArgs),
    /// Take a node out of use until a person decides.
    Quarantine(ActArgs),
    /// Take a node back into use.
    Recover(ActArgs),
    /// Erase every disk of a quarantined node.
    Wipe(ActArgs),
    /// Take a node out of its scheduler, jobs first.
    Drain(ActArgs),
    /// Put a draining node back.
    Undrain(ActArgs),
    /// Hand a node to a person.
    Maintain(MaintainArgs),
    /// Take a node back from maintenance.
    Resume(ActArgs),
    /// Take a node out of the fleet, and remember it.
    Retire(ActArgs),
    /// Take a retired node back.
    Reinstate(ActArgs),
    /// Say which parts were replaced: the node is inspected for the new serials.
    ReplaceParts(ReplaceArgs),
    /// Give a node another name; not while it is claimed.
    Rename(RenameArgs),
    /// Put a node into another rack or unit.
    Move(MoveArgs),
}

/// A maintenance and when it ends.
#[derive(Args, Debug)]
pub(crate) struct MaintainArgs {
    #[command(flatten)]
    act: ActArgs,
    /// Resume by itself after this time, such as `4h`; without it, somebody resumes it.
    #[arg(long = "for", value_parser = parse_duration)]
    lasts: Option<Duration>,
}

/// What to follow.
#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    node: String,
    /// Stop when the node gets to this state; failed and quarantined end it too, as failures.
    #[arg(long)]
    until: Option<String>,
    /// How long to wait for that.
    #[arg(long, default_value = "2h", value_parser = parse_duration)]
    timeout: Duration,
}

pub(super) async fn run(session: &Session, verb: NodeVerb) -> anyhow::Result<()> {
    let client = &session.client;
    match verb {
        NodeVerb::Parts { node } => parts::list(session, &node).await,
        NodeVerb::ReplaceParts(args) => parts::replace(session, args).await,
        NodeVerb::Adopt(args) => place::adopt(session, args).await,
        NodeVerb::Rename(args) => place::rename(session, args).await,
        NodeVerb::Move(args) => place::shift(session, args).await,
        NodeVerb::Maintain(args) => maintain(session, args).await,
        NodeVerb::List { filter } => {
            let items = client.list_all::<NodeSpec>(filter.as_deref()).await?;
            session.output.print(&items, || table(session, &items))
        }
        NodeVerb::Get { node } => {
            let node = client.get::<NodeSpec>(&node).await?;
            session.output.print_lines(&node, || lines(&node))
        }
        NodeVerb::Why { node } => {
            let why = client.node_why(&node).await?;
            session.output.print_lines(&why, || vec![why.sentence.clone()])
        }
        NodeVerb::Watch(args) => watch(session, &args).await,
        NodeVerb::Timeline { node } => timeline(session, &node).await,
        NodeVerb::Facts { node } => {
            let facts = client.node_facts(&node).await?;
            session.output.print_lines(&facts, || fact_lines(&facts))
        }
        NodeVerb::Gates { node } => {
            let runs = client.node_gate_runs(&node).await?;
            session.output.print_lines(&runs, || runs.items.iter().flat_map(gate_lines).collect())
        }
        NodeVerb::Console { node, follow } => consoles::show(session, &node, follow).await,
        other => act(session, other).await,
    }
}

async fn act(session: &Session, verb: NodeVerb) -> anyhow::Result<()> {
    let (action, args) = match verb {
        NodeVerb::Accept(args) => ("accept", args),
        NodeVerb::Reject(args) => ("reject", args),
        NodeVerb::Inspect(args) => ("inspect", args),
        NodeVerb::Retry(args) => ("retry", args),
        NodeVerb::Quarantine(args) => ("quarantine", args),
        NodeVerb::Recover(args) => ("recover", args),
        NodeVerb::Wipe(args) => ("wipe", args),
        NodeVerb::Drain(args) => ("drain", args),
        NodeVerb::Undrain(args) => ("undrain", args),
        NodeVerb::Resume(args) => ("resume", args),
        NodeVerb::Retire(args) => ("retire", args),
        NodeVerb::Reinstate(args) => ("reinstate", args),
        NodeVerb::List { .. }
        | NodeVerb::Get { .. }
        | NodeVerb::Why { .. }
        | NodeVerb::Watch(_)
        | NodeVerb::Timeline { .. }
        | NodeVerb::Facts { .. }
        | NodeVerb::Gates { .. }
        | NodeVerb::Parts { .. }
        | NodeVerb::Maintain(_)
        | NodeVerb::ReplaceParts(_)
        | NodeVerb::Adopt(_)
        | NodeVerb::Rename(_)
        | NodeVerb::Move(_)
        | NodeVerb::Console { .. } => bail!("not an action"),
    };
    let operation = session.client.node_action(&args.node, action, args.reason.as_deref()).await?;
    begun(session, &operation, &args).await
}

async fn maintain(session: &Session, args: MaintainArgs) -> anyhow::Result<()> {
    let until = args.lasts.map(SignedDuration::try_from).transpose()?.map(|lasts| session.clock.now() + lasts);
    let body = NodeAction { reason: args.act.reason.clone(), until };
    let operation = session.client.maintain_node(&args.act.node, &body).await?;
    begun(session, &operation, &args.act).await
}

fn table(session: &Session, nodes: &[Node]) -> Rows<8> {
    let now = session.clock.now();
    let row = |node: &Node| {
        let status = &node.status;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let address = status.addresses.first().map(|address| address.address.to_string());
        let waits = status.why.waiting_for.clone().or_else(|| status.reason.clone()).unwrap_or_default();
        [
            node.name.to_string(),
            status.state.clone(),
            age(now, status.entered_at),
            text(&status.pool),
            text(&node.spec.rack),
            waits,
            address.unwrap_or_default(),
            text(&status.claim),
        ]
    };
    Rows {
        headings: ["NAME", "STATE", "FOR", "POOL", "RACK", "WAITS FOR", "ADDRESS", "CLAIM"],
        rows: nodes.iter().map(row).collect(),
        wide_from: 6,
    }
}

fn lines(node: &Node) -> Vec<String> {
    let status = &node.status;
    let mut lines = vec![status.why.sentence.clone()];
    let mut add = |name: &str, value: Option<String>| lines.extend(value.map(|value| format!("{name:<16} {value}")));
    add("id", Some(node.id.to_string()));
    add("site", Some(node.spec.site.clone()));
    add("rack", node.spec.rack.clone());
    add("profile", node.spec.profile.clone());
    add("pool", status.pool.clone());
    add("claim", status.claim.clone());
    add("epoch", Some(status.epoch.to_string()));
    add("operation", status.operation.map(|id| id.to_string()));
    for address in &status.addresses {
        add("address", Some(format!("{} ({}, {})", address.address, address.mac, address.subnet)));
    }
    add(
        "gates",
        status.last_gate_run.as_ref().map(|run| format!("{} {} at {}", run.suite, run.verdict, run.finished_at)),
    );
    for condition in &status.conditions {
        add(&condition.condition, Some(condition.value.clone()));
    }
    for (name, value) in &node.labels {
        add("label", Some(format!("{name}={value}")));
    }
    lines
}

fn fact_lines(seen: &NodeFacts) -> Vec<String> {
    let facts = &seen.facts;
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".into());
    let mut lines = vec![
        format!("observed {} in the {} system", seen.observed_at, seen.source),
        format!(
            "machine  {} {}, serial {}",
            text(&facts.smbios.manufacturer),
            text(&facts.smbios.product),
            text(&facts.smbios.serial)
        ),
        format!("memory   {} MiB", facts.memory.total_bytes >> 20),
    ];
    lines.extend(
        facts.cpus.iter().map(|cpu| format!("cpu      {} ({} cores, {} threads)", cpu.model, cpu.cores, cpu.threads)),
    );
    lines.extend(facts.gpus.iter().map(|gpu| format!("gpu      {} at {}", text(&gpu.model), gpu.pci_address)));
    lines.extend(facts.disks.iter().map(|disk| {
        format!(
            "disk     {} {:?} {} GiB, serial {}",
            disk.name,
            disk.transport,
            disk.size_bytes >> 30,
            text(&disk.serial)
        )
    }));
    lines.extend(
        facts
            .nics
            .iter()
            .map(|nic| format!("nic      {} {} {}", nic.name, nic.mac, if nic.link_up { "up" } else { "down" })),
    );
    lines
}

fn gate_lines(run: &GateRun) -> Vec<String> {
    let mut lines = vec![format!("{} {} at {}", run.suite, run.verdict, run.finished_at)];
    for result in &run.results {
        let took = duration(i64::try_from(result.duration_ms).unwrap_or(i64::MAX));
        lines.push(format!("  {:<8} {:<28} {took:>10}  {}", result.verdict.as_str(), result.gate, result.reason));
    }
    lines
}

async fn timeline(session: &Session, node: &str) -> anyhow::Result<()> {
    let timeline = session.client.node_timeline(node).await?;
    session.output.print_lines(&timeline, || {
        let line = |item: &muster_api::nodes::TimelineEntry| {
            let took = item.duration_ms.map(|took| format!(" ({})", duration(took))).unwrap_or_default();
            format!("{}  {}{took}", item.at.strftime("%F %T"), item.summary)
        };
        timeline.items.iter().map(line).collect()
    })
}

/// Prints events as they come; a server that is away for a moment is waited for.
async fn watch(session: &Session, args: &WatchArgs) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.timeout;
    let mut after = 0;
    loop {
        let node = match session.client.get::<NodeSpec>(&args.node).await {
            Ok(node) => node,
            Err(error) if error.away() && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let id = node.id.to_string();
        let wait = if after == 0 { "0s" } else { "20s" };
        match session.client.events(after, &[("node", &id), ("wait", wait), ("limit", "1000")]).await {
            Ok(events) => {
                for event in &events.items {
                    match session.output.is_table() {
                        true => println!("{}  {}", event.at.strftime("%F %T"), clean(&event.summary)),
                        false => println!("{}", serde_json::to_string(event)?),
                    }
                }
                after = events.last_seq.max(1);
            }
            Err(error) if error.away() => tokio::time::sleep(Duration::from_secs(1)).await,
            Err(error) => return Err(error.into()),
        }
        let Some(until) = &args.until else { continue };
        if reached(&node, until)? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(ClientError::TimedOut(node.status.why.sentence).into());
        }
    }
}

fn reached(node: &Node, until: &str) -> anyhow::Result<bool> {
    let state = node.status.state.as_str();
    match state {
        _ if state == until => Ok(true),
        "failed" | "quarantined" | "retired" => bail!("{}", clean(&node.status.why.sentence)),
        _ => Ok(false),
    }
}
