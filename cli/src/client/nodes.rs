//! `muster node`.

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::SignedDuration;
use muster_api::client::{ClientError, Precondition};
use muster_api::nodes::{NodeAction, NodeFacts, NodePlan, NodeSpec, NodeStatus};
use muster_api::operations::Operation;
use muster_core::firmware::BmcInventory;
use tokio::time::Instant;

use super::acting::{ActArgs, OneArgs, begun};
use super::exit::{Ended, Exit};
use super::output::{clean, duration};
use super::parts::{self, ReplaceArgs};
use super::place::{self, AdoptArgs, MatchArgs, MoveArgs, RenameArgs};
use super::session::Session;
use super::{asking, cabling, consoles, events, gate_runs, plans, recoveries};
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
}

/// The actions with a reason as the only argument.
#[derive(Debug, Subcommand)]
pub(crate) enum Act {
    /// Accept a discovered node, and inspect the node
    Accept(ActArgs),
    /// Reject a discovered node
    Reject(ActArgs),
    /// Inspect an available node again
    Inspect(ActArgs),
    /// Retry a failed phase from its start
    Retry(ActArgs),
    /// Quarantine a node until a person decides
    Quarantine(ActArgs),
    /// Recover a node: from quarantine through its gates, from service through the recovery policy
    /// of its pool
    Recover(ActArgs),
    /// Run the pool's sweep on nodes in service, beside their jobs
    Sweep(ActArgs),
    /// Erase all disks of a quarantined node
    Wipe(LastingArgs),
    /// Drain a node: its jobs finish, then the node leaves the scheduler
    Drain(ActArgs),
    /// Return a draining node to service
    Undrain(ActArgs),
    /// Resume a node in maintenance
    Resume(ActArgs),
    /// Retire a node, and keep its record
    Retire(LastingArgs),
    /// Restore a retired node
    Reinstate(ActArgs),
    /// Switch on a node in maintenance or quarantine. The node boots from its own disk
    PowerOn(ActArgs),
    /// Shut down a node without jobs. If the system does not answer, the power is cut
    PowerOff(ActArgs),
    /// Reset a node in maintenance or quarantine, regardless of its running software
    PowerCycle(ActArgs),
    /// Run a suite on idle nodes. The result is recorded and decides nothing
    RunGates(SuiteArgs),
    /// Converge nodes to the stack of their assigned revision: drain first, then admission through the gates
    Converge(ActArgs),
    /// Set new passwords for the BMCs of nodes, beside running jobs. The passwords are never shown
    RotateBmc(ActArgs),
    /// Write the pool's image onto the root disks of nodes: drain first, then admission through the
    /// gates
    Reinstall(LastingArgs),
}

/// A gate run.
#[derive(Args, Debug)]
pub(crate) struct SuiteArgs {
    #[command(flatten)]
    act: ActArgs,
    /// Name of the suite. Default: the suite of the node's pool
    #[arg(long)]
    suite: Option<String>,
}

/// An action with confirmation.
#[derive(Args, Debug)]
pub(crate) struct LastingArgs {
    #[command(flatten)]
    act: ActArgs,
    /// Skip the confirmation. Scripts without a terminal are never asked
    #[arg(short, long)]
    yes: bool,
}

/// A maintenance with an end.
#[derive(Args, Debug)]
pub(crate) struct MaintainArgs {
    #[command(flatten)]
    act: OneArgs,
    /// Time until an automatic resume, such as `4h`. Default: a person resumes the node
    #[arg(long = "for", value_parser = parse_duration)]
    lasts: Option<Duration>,
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
        NodeVerb::Maintain(args) => maintain(session, args).await,
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
        NodeVerb::Act(act) => run_action(session, act).await,
    }
}

async fn run_action(session: &Session, act: Act) -> anyhow::Result<()> {
    let mut suite = None;
    let (action, args) = match act {
        Act::PowerOn(args) => ("power-on", args),
        Act::PowerOff(args) => ("power-off", args),
        Act::PowerCycle(args) => ("power-cycle", args),
        Act::RotateBmc(args) => ("rotate-bmc", args),
        Act::Converge(args) => ("converge", args),
        Act::RunGates(args) => {
            suite = args.suite;
            ("run-gates", args.act)
        }
        Act::Accept(args) => ("accept", args),
        Act::Reject(args) => ("reject", args),
        Act::Inspect(args) => ("inspect", args),
        Act::Retry(args) => ("retry", args),
        Act::Quarantine(args) => ("quarantine", args),
        Act::Recover(args) => ("recover", args),
        Act::Sweep(args) => ("sweep", args),
        Act::Drain(args) => ("drain", args),
        Act::Undrain(args) => ("undrain", args),
        Act::Resume(args) => ("resume", args),
        Act::Reinstate(args) => ("reinstate", args),
        Act::Wipe(args) if meant("Erase every disk of", &args)? => ("wipe", args.act),
        Act::Retire(args) if meant("Retire", &args)? => ("retire", args.act),
        Act::Reinstall(args) if meant("Write the image to the root disk of", &args)? => {
            ("reinstall", args.act)
        }
        Act::Wipe(_) | Act::Retire(_) | Act::Reinstall(_) => return Ok(()),
    };
    let body = NodeAction {
        reason: args.how.reason.clone(),
        until: None,
        suite,
    };
    if args.how.plan {
        return plan_action(session, &args.nodes, action, &body).await;
    }
    let mut operations = Vec::with_capacity(args.nodes.len());
    let mut refused = None;
    for node in &args.nodes {
        match ask(session, node, action, &body).await {
            Ok(operation) => operations.push(operation),
            Err(error) if args.nodes.len() == 1 => return Err(error.into()),
            // A refusal for one node does not stop the requests for the others.
            Err(error) => {
                eprintln!("muster: {node}: {}", clean(&error.to_string()));
                refused = refused.or(Some(error));
            }
        }
    }
    begun(session, &operations, args.how.waiting).await?;
    refused.map_or(Ok(()), |error| {
        Err(anyhow::Error::from(error).context(format!("not every node: {action}")))
    })
}

/// Returns whether the person at the terminal confirms.
fn meant(question: &str, args: &LastingArgs) -> anyhow::Result<bool> {
    let question = format!("{question} {}?", args.act.nodes.join(", "));
    asking::agreed(&question, args.yes || args.act.how.plan)
}

/// Irreversible actions carry the generation read here.
async fn ask(
    session: &Session,
    node: &str,
    action: &str,
    body: &NodeAction,
) -> Result<Operation, ClientError> {
    let precondition = match action {
        "wipe" | "reinstall" => {
            let node = session.client.get_with_any_spec::<NodeSpec>(node).await?;
            Precondition::Generation(node.generation)
        }
        _ => Precondition::None,
    };
    session
        .client
        .act_on_node(node, action, body, precondition)
        .await
}

/// Returns the effects of an action on each node, or the reason of a refusal.
async fn plan_action(
    session: &Session,
    nodes: &[String],
    action: &str,
    body: &NodeAction,
) -> anyhow::Result<()> {
    let mut plans = Vec::with_capacity(nodes.len());
    for node in nodes {
        match session.client.plan_node(node, action, body).await {
            Ok(plan) => plans.push((node.as_str(), plan)),
            Err(error) if nodes.len() == 1 || error.status() != Some(409) => {
                return Err(error.into());
            }
            Err(error) => {
                let plan = NodePlan {
                    effect: "none".into(),
                    changes: Vec::new(),
                    blockers: vec![error.to_string()],
                };
                plans.push((node.as_str(), plan));
            }
        }
    }
    match plans.as_slice() {
        [(_, one)] => plans::show(session, one),
        several => plans::show_all(session, several),
    }
}

async fn maintain(session: &Session, args: MaintainArgs) -> anyhow::Result<()> {
    let until = args
        .lasts
        .map(SignedDuration::try_from)
        .transpose()?
        .map(|lasts| session.clock.now() + lasts);
    let body = NodeAction {
        reason: args.act.how.reason.clone(),
        until,
        suite: None,
    };
    if args.act.how.plan {
        return plan_action(
            session,
            std::slice::from_ref(&args.act.node),
            "maintain",
            &body,
        )
        .await;
    }
    let operation = session.client.maintain_node(&args.act.node, &body).await?;
    begun(session, &[operation], args.act.how.waiting).await
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
                            println!("{}  {}", event.at.strftime("%F %T"), clean(&event.summary))
                        }
                        false => println!("{}", serde_json::to_string(event)?),
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
