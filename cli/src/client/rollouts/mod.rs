//! `muster rollout`.

mod adjust; // Changes to the policy of an open rollout
mod regression; // The option for a regression

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use muster_api::rollouts::{
    PlanRollout, Rollout, RolloutEstimate, RolloutNode, RolloutState, RolloutWindow, StartRollout,
    SteerNode, SteerRollout,
};
use muster_core::effects::Effect;
use muster_core::rollout::{HaltWhen, Regression, RolloutPolicy};
use serde::de::DeserializeOwned;

use super::asking;
use super::output::{Column, Form};
use super::session::Session;
use regression::parse_regression;

/// Subcommands of rollouts.
#[derive(Debug, Subcommand)]
pub(crate) enum RolloutVerb {
    /// Plan a rollout of a pool to a revision. No node changes before the start
    Plan(PlanArgs),
    /// Start a planned rollout
    Start(StartArgs),
    /// List the newest rollouts
    List {
        /// Only rollouts of this pool
        #[arg(long)]
        pool: Option<String>,
    },
    /// Show a rollout: its rule in force, and each node
    Show { rollout: String },
    /// Follow a rollout until it ends or is halted
    Watch { rollout: String },
    /// Halt a rollout: no further work starts, and changing nodes finish
    Halt(SteerArgs),
    /// Resume a halted rollout
    Resume(SteerArgs),
    /// End the canary and its soak now
    Promote(SteerArgs),
    /// Change budgets, deadlines, signals or the maintenance window of an open rollout
    Adjust(adjust::AdjustArgs),
    /// Leave out a node that has not begun
    Skip(NodeArgs),
    /// Take a failed or skipped node again
    Retry(NodeArgs),
    /// Close a waiting node in its turn, and have its jobs requeued
    Requeue(NodeArgs),
}

/// The pool, the revision and the policy.
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    pool: String,
    /// Number of the revision. `muster pool revisions` lists the revisions
    #[arg(long)]
    revision: i32,
    /// File with the policy, as JSON. Default: canary of 1 node, exponential waves, reboots allowed
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Maintenance window, in addition to the windows of site and pool
    #[arg(long, value_name = "NAME")]
    maintenance_window: Option<String>,
    /// Rollout of another pool that must be done before the start, with the same image and stack
    #[arg(long, value_name = "ROLLOUT")]
    after: Option<String>,
    /// Alert that halts the rollout while it fires on a node that the rollout has taken. Repeatable
    #[arg(long, value_name = "ALERT")]
    halt_on_alert: Vec<String>,
    /// Monitor that halts the rollout: a query to Prometheus (muster monitor). Repeatable
    #[arg(long, value_name = "MONITOR")]
    halt_on_monitor: Vec<String>,
    /// Largest tolerated loss of a gate's value on a changed node, in percent of the value before. Repeatable
    #[arg(long, value_name = "GATE/METRIC=PERCENT", value_parser = parse_regression)]
    halt_on_regression: Vec<Regression>,
}

/// The plan to start.
#[derive(Args, Debug)]
pub(crate) struct StartArgs {
    rollout: String,
    /// Digest of the plan, as printed by `plan`. Default: the plan as shown now
    #[arg(long, value_name = "DIGEST")]
    plan: Option<String>,
    /// Take over from the open rollout of the pool
    #[arg(long)]
    supersede: bool,
    /// Skip the confirmation. Scripts without a terminal are never asked
    #[arg(short, long)]
    yes: bool,
}

/// The rollout and the reason.
#[derive(Args, Debug)]
pub(crate) struct SteerArgs {
    rollout: String,
    /// Reason, recorded in the history
    #[arg(long)]
    reason: String,
}

/// The rollout, the node and the reason.
#[derive(Args, Debug)]
pub(crate) struct NodeArgs {
    rollout: String,
    node: String,
    /// Reason, recorded in the history
    #[arg(long)]
    reason: String,
}

const COLUMNS: &[Column] = &[
    Column::new("ROLLOUT", "/name", Form::Text),
    Column::new("STATE", "/state", Form::State),
    Column::new("REVISION", "/revision", Form::Text),
    Column::new("PLANNED", "/planned", Form::Text),
    Column::new("DONE", "/marks/done", Form::Text),
    Column::new("FAILED", "/marks/failed", Form::Text),
    Column::new("BY", "/actor", Form::Text),
    Column::new("AGE", "/created_at", Form::Age),
];

/// Interval of `watch`.
const EVERY: std::time::Duration = std::time::Duration::from_secs(5);

pub(super) async fn run(session: &Session, verb: RolloutVerb) -> anyhow::Result<()> {
    let client = &session.client;
    let steer = |args: SteerArgs| {
        let SteerArgs { rollout, reason } = args;
        (rollout, SteerRollout { reason })
    };
    let choose = |args: NodeArgs| {
        let NodeArgs {
            rollout,
            node,
            reason,
        } = args;
        (rollout, SteerNode { node, reason })
    };
    let rollout = match verb {
        RolloutVerb::Plan(args) => return show(session, &plan(session, args).await?),
        RolloutVerb::Start(args) => match start(session, args).await? {
            Some(rollout) => rollout,
            None => return Ok(()),
        },
        RolloutVerb::List { pool } => {
            let page = client.rollouts(pool.as_deref()).await?;
            return session
                .output
                .list_of(&page.items, COLUMNS, session.clock.now());
        }
        RolloutVerb::Show { rollout } => return show(session, &client.rollout(&rollout).await?),
        RolloutVerb::Watch { rollout } => return watch(session, &rollout).await,
        RolloutVerb::Halt(args) => {
            let (rollout, body) = steer(args);
            client.steer_rollout(&rollout, "halt", &body).await?
        }
        RolloutVerb::Resume(args) => {
            let (rollout, body) = steer(args);
            client.steer_rollout(&rollout, "resume", &body).await?
        }
        RolloutVerb::Promote(args) => {
            let (rollout, body) = steer(args);
            client.steer_rollout(&rollout, "promote", &body).await?
        }
        RolloutVerb::Adjust(args) => adjust::adjust(session, args).await?,
        RolloutVerb::Skip(args) => {
            let (rollout, body) = choose(args);
            client.steer_rollout(&rollout, "skip", &body).await?
        }
        RolloutVerb::Retry(args) => {
            let (rollout, body) = choose(args);
            client.steer_rollout(&rollout, "retry", &body).await?
        }
        RolloutVerb::Requeue(args) => {
            let (rollout, body) = choose(args);
            client.steer_rollout(&rollout, "requeue", &body).await?
        }
    };
    session.output.print_lines(&rollout, || describe(&rollout))
}

/// Prints a rollout with its nodes.
fn show(session: &Session, rollout: &Rollout) -> anyhow::Result<()> {
    let lines = || [describe(rollout), describe_nodes(rollout)].concat();
    session.output.print_lines(rollout, lines)
}

/// Reads a JSON file.
fn read_json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

async fn plan(session: &Session, args: PlanArgs) -> anyhow::Result<Rollout> {
    let mut policy: RolloutPolicy = match &args.policy {
        Some(path) => read_json(path)?,
        None => RolloutPolicy::default(),
    };
    if args.maintenance_window.is_some() {
        policy.maintenance_window = args.maintenance_window;
    }
    if args.after.is_some() {
        policy.after = args.after;
    }
    policy
        .halt_when
        .extend(args.halt_on_alert.into_iter().map(HaltWhen::Alert));
    policy
        .halt_when
        .extend(args.halt_on_monitor.into_iter().map(HaltWhen::Monitor));
    policy.halt_when.extend(
        args.halt_on_regression
            .into_iter()
            .map(HaltWhen::Regression),
    );
    let body = PlanRollout {
        pool: args.pool,
        revision: args.revision,
        policy,
    };
    Ok(session.client.plan_rollout(&body).await?)
}

/// Starts a plan after a confirmation. `None`: the person did not confirm.
async fn start(session: &Session, args: StartArgs) -> anyhow::Result<Option<Rollout>> {
    let seen = session.client.rollout(&args.rollout).await?;
    let reinstalls = describe_reinstalls(&seen).map(|line| format!(" ({line})"));
    let question = format!(
        "Move {} nodes of {} to revision {}{}?",
        seen.planned,
        seen.pool,
        seen.revision,
        reinstalls.unwrap_or_default()
    );
    if !asking::agreed(&question, args.yes || args.plan.is_some())? {
        return Ok(None);
    }
    let body = StartRollout {
        plan: args.plan.unwrap_or(seen.plan),
        supersede: args.supersede,
    };
    Ok(Some(
        session.client.start_rollout(&args.rollout, &body).await?,
    ))
}

/// Prints a line for each change of the rollout, until the end or a halt.
async fn watch(session: &Session, key: &str) -> anyhow::Result<()> {
    let mut before = String::new();
    loop {
        let rollout = session.client.rollout(key).await?;
        let line = describe_progress(&rollout);
        if line != before {
            session
                .output
                .print_lines(&rollout, || vec![line.clone()])?;
            before = line;
        }
        match rollout.state {
            RolloutState::Planned | RolloutState::Running if crate::printing::is_reader_gone() => {
                return Ok(());
            }
            RolloutState::Planned | RolloutState::Running => {}
            RolloutState::Done => return Ok(()),
            RolloutState::Halted | RolloutState::Superseded | RolloutState::Expired => {
                anyhow::bail!("{} is {}", rollout.name, rollout.state)
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// The bar and the counts of a rollout in one line.
fn describe_progress(rollout: &Rollout) -> String {
    const WIDTH: u32 = 20;
    let count = |mark: &str| rollout.marks.get(mark).copied().unwrap_or_default();
    let total: u32 = rollout.marks.values().sum();
    let ended = count("done") + count("skipped") + count("failed");
    let filled = (ended * WIDTH).checked_div(total).unwrap_or(WIDTH);
    let bar: String = (0..WIDTH)
        .map(|at| if at < filled { '#' } else { '.' })
        .collect();
    let counts: Vec<String> = rollout
        .marks
        .iter()
        .map(|(mark, count)| format!("{count} {}", mark.replace('_', " ")))
        .collect();
    let binding = rollout.now.as_ref().and_then(|now| now.binding.as_ref());
    let because = rollout.halt.as_ref().or(binding);
    let because = because.map(|reason| format!("; {}", reason.sentence));
    format!(
        "{} {} [{bar}] {}{}",
        rollout.name,
        rollout.state,
        counts.join(", "),
        because.unwrap_or_default()
    )
}

/// The rollout and its rules.
fn describe(rollout: &Rollout) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{}: {} to revision {} of {}, {} nodes planned",
            rollout.name, rollout.state, rollout.revision, rollout.pool, rollout.planned
        ),
        describe_progress(rollout),
    ];
    lines.extend(rollout.now.as_ref().map(|now| {
        let bound_by = now.bound_by.as_ref();
        let because = bound_by.map(|rule| format!(": {}", rule.sentence));
        format!(
            "{}; {} change now, at most {} at a time{}",
            now.failure_rule,
            now.changing,
            now.most_changing,
            because.unwrap_or_default()
        )
    }));
    let losses = rollout.now.as_ref().and_then(|now| now.losses.as_ref());
    lines.extend(losses.map(|losses| losses.sentence.clone()));
    let failed = rollout.now.as_ref();
    let failed = failed.and_then(|now| now.reservations_failed.as_ref());
    lines.extend(failed.map(|failed| {
        format!(
            "waiting nodes may get jobs that are too long: their reservations have failed since {:.0}: {}",
            failed.since, failed.sentence
        )
    }));
    let signals = rollout.now.iter().flat_map(|now| &now.signals);
    lines.extend(signals.map(|signal| format!("signal: {}", signal.sentence)));
    if let Some(after) = &rollout.policy.after {
        lines.push(format!("after: {after}"));
    }
    let windows = rollout.now.iter().flat_map(|now| &now.windows);
    lines.extend(windows.map(describe_window));
    lines.extend(describe_waves(rollout));
    lines.extend(describe_reinstalls(rollout));
    lines.extend(rollout.estimate.as_ref().map(describe_end));
    lines.extend(describe_visits(rollout));
    if rollout.state == RolloutState::Planned {
        lines.push(format!("plan {}", rollout.plan));
        lines.push(format!(
            "start it with: muster rollout start {} --plan {}",
            rollout.name, rollout.plan
        ));
    }
    lines
}

/// Returns a maintenance window in a line.
fn describe_window(window: &RolloutWindow) -> String {
    let at = window.changes_at;
    let state = match (window.open, &window.frozen) {
        _ if window.unreadable => "cannot be read, no node is taken".to_owned(),
        (true, _) => {
            let until = at.map(|at| format!(" until {at:.0}"));
            format!("open{}", until.unwrap_or_default())
        }
        (false, frozen) => {
            let freeze = frozen.as_deref().map(|reason| match reason {
                "" => " by a freeze".to_owned(),
                reason => format!(" by a freeze ({reason})"),
            });
            let opens = at.map(|at| format!(", opens {at:.0}"));
            format!(
                "closed{}{}",
                freeze.unwrap_or_default(),
                opens.unwrap_or_default()
            )
        }
    };
    format!(
        "window {} of {} {}: {state}",
        window.name, window.named_by, window.namer
    )
}

/// Returns the ended nodes of each wave in a line. `None` without nodes.
fn describe_waves(rollout: &Rollout) -> Option<String> {
    const MOST: usize = 12;
    let mut waves: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for node in rollout.nodes.iter().flatten() {
        if let Some(number) = node.wave {
            let (ended, all) = waves.entry(number).or_default();
            *ended += usize::from(node.mark.is_terminal());
            *all += 1;
        }
    }
    let more = waves.len().saturating_sub(MOST);
    let mut told: Vec<String> = waves
        .iter()
        .take(MOST)
        .map(|(number, (ended, all))| match number {
            0 => format!("canary {ended} of {all}"),
            number => format!("wave {number} {ended} of {all}"),
        })
        .collect();
    if more > 0 {
        told.push(format!("and {more} more waves"));
    }
    (!told.is_empty()).then(|| format!("ended: {}", told.join(", ")))
}

/// Returns the estimated end in a line.
fn describe_end(estimate: &RolloutEstimate) -> String {
    let as_of = estimate.as_of.map(|at| format!(", as of {at:.0}"));
    let as_of = as_of.unwrap_or_default();
    match (estimate.early, estimate.late, &estimate.unknown) {
        (Some(early), Some(late), _) => format!("estimated end: {early:.0} to {late:.0}{as_of}"),
        (_, _, Some(why)) => format!("estimated end: unknown{as_of}: {why}"),
        (_, _, None) => "estimated end: unknown".to_owned(),
    }
}

/// Returns the number of planned reinstalls in a line. `None` without one.
fn describe_reinstalls(rollout: &Rollout) -> Option<String> {
    let nodes = rollout.nodes.iter().flatten();
    let is_reinstall = |effect: &str| effect == Effect::Reinstall.as_str();
    let count = nodes
        .filter(|node| node.effect.as_deref().is_some_and(is_reinstall))
        .count();
    let permits = rollout.policy.allow.permits(Effect::Reinstall);
    let verb = match permits {
        true => "their root disks are overwritten",
        false => "skipped, because the policy does not allow it",
    };
    let open = rollout.state == RolloutState::Planned;
    (count > 0 && open).then(|| format!("nodes to reinstall: {count}; {verb}"))
}

/// Returns the date of the policy in a line, with the nodes that are late.
fn describe_visits(rollout: &Rollout) -> Option<String> {
    const MOST: usize = 12;
    let by = rollout.policy.visit_by?;
    let late = rollout.nodes.iter().flatten().filter(|node| node.overdue);
    let late: Vec<&str> = late.map(|node| node.node.as_str()).collect();
    let end = rollout.estimate.as_ref().and_then(|end| end.late);
    let state = match late.len() {
        0 if end.is_some_and(|end| end > by) => ": the late estimate is after this date".to_owned(),
        0 => String::new(),
        1 => format!(": 1 node is late: {}", late[0]),
        count if count <= MOST => format!(": {count} nodes are late: {}", late.join(", ")),
        count => format!(": {count} nodes are late"),
    };
    Some(format!("visit by {by:.0}{state}"))
}

/// The nodes by mark.
fn describe_nodes(rollout: &Rollout) -> Vec<String> {
    let mut nodes: BTreeMap<&str, Vec<&RolloutNode>> = BTreeMap::new();
    for node in rollout.nodes.iter().flatten() {
        nodes.entry(node.mark.as_str()).or_default().push(node);
    }
    let mut lines = Vec::new();
    for (mark, nodes) in nodes {
        lines.push(format!("{} ({})", mark.replace('_', " "), nodes.len()));
        for node in nodes {
            lines.push(describe_node(node));
            let compared = node.compared.iter();
            let compared = compared.filter(|one| one.is_worse || one.problem.is_some());
            lines.extend(compared.map(|one| format!("    {}", one.sentence)));
        }
    }
    lines
}

fn describe_node(node: &RolloutNode) -> String {
    let reason = node.why.as_ref().or(node.last.as_ref());
    let reason = reason.map(|reason| format!(": {}", reason.sentence));
    format!(
        "  {:<24} {:<10} {}{}{}",
        node.node,
        node.effect.as_deref().unwrap_or("unknown"),
        node.state,
        reason.unwrap_or_default(),
        match node.requeue_agreed_at {
            Some(_) => " (its jobs may be requeued)",
            None => "",
        }
    )
}
