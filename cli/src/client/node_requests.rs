//! Requests of actions on nodes: `muster node drain`, `muster node maintain` and others.

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::SignedDuration;
use muster_api::client::{ClientError, Precondition};
use muster_api::nodes::{NodeAction, NodePlan, NodeSpec};
use muster_api::operations::Operation;

use super::acting::{ActArgs, OneArgs, begun};
use super::output::clean;
use super::session::Session;
use super::{asking, plans};
use crate::duration::parse_duration;

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
    Quarantine(OutArgs),
    /// Recover a node: from quarantine through its gates, from service through the recovery policy
    /// of its pool
    Recover(OutArgs),
    /// Run the pool's sweep on nodes in service, beside their jobs
    Sweep(ActArgs),
    /// Erase all disks of a quarantined node
    Wipe(LastingArgs),
    /// Drain a node: its jobs finish, then the node leaves the scheduler
    Drain(OutArgs),
    /// Return a node to service: from a drain, or after a drain that failed
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
    Converge(OutArgs),
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

/// An action that takes a node out of service.
#[derive(Args, Debug)]
pub(crate) struct OutArgs {
    #[command(flatten)]
    act: ActArgs,
    /// Take nodes out beyond the disruption budgets, for this reason. Default: wait for a free slot
    #[arg(long, value_name = "REASON")]
    override_budget: Option<String>,
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
    /// Take the node out beyond the disruption budgets, for this reason. Default: wait for a free
    /// slot
    #[arg(long, value_name = "REASON")]
    override_budget: Option<String>,
}

pub(super) async fn run(session: &Session, act: Act) -> anyhow::Result<()> {
    let (mut suite, mut override_budget) = (None, None);
    let (action, args) = match act {
        Act::PowerOn(args) => ("power-on", args),
        Act::PowerOff(args) => ("power-off", args),
        Act::PowerCycle(args) => ("power-cycle", args),
        Act::RotateBmc(args) => ("rotate-bmc", args),
        Act::Converge(args) => {
            override_budget = args.override_budget;
            ("converge", args.act)
        }
        Act::RunGates(args) => {
            suite = args.suite;
            ("run-gates", args.act)
        }
        Act::Accept(args) => ("accept", args),
        Act::Reject(args) => ("reject", args),
        Act::Inspect(args) => ("inspect", args),
        Act::Retry(args) => ("retry", args),
        Act::Quarantine(args) => {
            override_budget = args.override_budget;
            ("quarantine", args.act)
        }
        Act::Recover(args) => {
            override_budget = args.override_budget;
            ("recover", args.act)
        }
        Act::Sweep(args) => ("sweep", args),
        Act::Drain(args) => {
            override_budget = args.override_budget;
            ("drain", args.act)
        }
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
        override_budget,
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

pub(super) async fn maintain(session: &Session, args: MaintainArgs) -> anyhow::Result<()> {
    let until = args
        .lasts
        .map(SignedDuration::try_from)
        .transpose()?
        .map(|lasts| session.clock.now() + lasts);
    let body = NodeAction {
        reason: args.act.how.reason.clone(),
        until,
        override_budget: args.override_budget,
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
