//! `muster pool run-pairs`, `muster pool pairs`.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use muster_api::pairs::{MeasuredPair, PairRun, RunPairs};
use uuid::Uuid;

use super::acting::{self, Waiting};
use super::output::{Column, Form};
use super::session::Session;
use crate::duration::parse_duration;

/// Subcommands about pairs of a pool's nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum PairVerb {
    /// Measure idle nodes of a pool in pairs, until each failure is attributed to a node or to a
    /// path
    RunPairs(RunArgs),
    /// Show the result of a pair run: faulty nodes, and excluded nodes with reasons
    Pairs(PairsArgs),
}

/// The requested run.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    pool: String,
    /// Suite with pair gates. Other gates of the suite are skipped
    #[arg(long)]
    suite: String,
    /// Only these nodes of the pool
    #[arg(long = "node", value_name = "NODE")]
    nodes: Vec<String>,
    /// Maximum number of idle nodes, 2 to 256. Nodes with the oldest measurement are first
    #[arg(long, value_name = "COUNT")]
    most: Option<u32>,
    /// Time limit of the run, such as 90m or 2h
    #[arg(long, value_parser = parse_duration)]
    within: Option<Duration>,
    /// Value for a word of the suite's gates, such as rdma_device=mlx5_0
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = word)]
    words: Vec<(String, String)>,
    /// Hold nodes back beyond the disruption budgets, for this reason. Default: leave out nodes
    /// without a free slot
    #[arg(long, value_name = "REASON")]
    override_budget: Option<String>,
    /// Show the effects without starting
    #[arg(long, visible_alias = "dry-run", conflicts_with = "wait")]
    plan: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// The run to show.
#[derive(Args, Debug)]
pub(crate) struct PairsArgs {
    pool: String,
    /// Id of the run. Default: the newest run
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    run: Option<Uuid>,
    /// List the newest runs
    #[arg(long)]
    all: bool,
}

const COLUMNS: &[Column] = &[
    Column::new("RUN", "/id", Form::Text),
    Column::new("STATE", "/state", Form::State),
    Column::new("SUITE", "/suite", Form::Text),
    Column::new("BY", "/actor", Form::Text),
    Column::new("AGE", "/begun_at", Form::Age),
];

fn word(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) async fn run(session: &Session, verb: PairVerb) -> anyhow::Result<()> {
    match verb {
        PairVerb::RunPairs(args) => begin(session, args).await,
        PairVerb::Pairs(args) if args.all => {
            let page = session.client.pair_runs(&args.pool).await?;
            session
                .output
                .list_of(&page.items, COLUMNS, session.clock.now())
        }
        PairVerb::Pairs(args) => show(session, &args.pool, args.run).await,
    }
}

async fn begin(session: &Session, args: RunArgs) -> anyhow::Result<()> {
    let RunArgs {
        pool,
        suite,
        nodes,
        most,
        within,
        words,
        override_budget,
        plan,
        waiting,
    } = args;
    let within = within
        .map(|within| u32::try_from(within.as_secs()))
        .transpose();
    let within_s = within.map_err(|_| anyhow!("--within is at most 12h"))?;
    let body = RunPairs {
        suite,
        nodes,
        most,
        within_s,
        override_budget,
        variables: words.into_iter().collect(),
    };
    if plan {
        let plan = session.client.plan_pairs(&pool, &body).await?;
        return session.output.print_lines(&plan, || plan.changes.clone());
    }
    let operation = session.client.run_pairs(&pool, &body).await?;
    let id = operation.id;
    let lines = || {
        vec![format!(
            "pairs of {pool}: operation {id}; muster pool pairs {pool} shows them"
        )]
    };
    acting::tell(session, &[operation], waiting, lines).await?;
    match waiting.is_wanted() && session.output.is_table() {
        true => show(session, &pool, Some(id)).await,
        false => Ok(()),
    }
}

async fn show(session: &Session, pool: &str, run: Option<Uuid>) -> anyhow::Result<()> {
    let id = match run {
        Some(id) => id,
        None => {
            let page = session.client.pair_runs(pool).await?;
            let none = || {
                format!(
                    "no pairs of {pool} were measured yet: muster pool run-pairs {pool} --suite pairs"
                )
            };
            page.items.first().map(|run| run.id).with_context(none)?
        }
    };
    let run = session.client.pair_run(pool, id).await?;
    session.output.print_lines(&run, || lines(&run))
}

/// Prints the result, the nodes, and every pair without a pass.
fn lines(run: &PairRun) -> Vec<String> {
    let begun = run.begun_at.strftime("%F %T");
    let mut lines = vec![format!(
        "{begun}  {}  {}  by {}",
        run.state, run.suite, run.actor
    )];
    lines.extend(run.findings.iter().map(|told| format!("  {told}")));
    if run.beyond > 0 {
        lines.push(format!("  {} more idle nodes were not taken", run.beyond));
    }
    let width = run.ends.iter().map(|end| end.node.len()).max().unwrap_or(0);
    lines.extend(run.ends.iter().map(|end| {
        let why = end
            .why
            .as_deref()
            .map(|why| format!("  {why}"))
            .unwrap_or_default();
        format!(
            "{:<width$}  {:<8}{why}",
            end.node,
            end.verdict.replace('_', " ")
        )
    }));
    let pairs = run.pairs.as_deref().unwrap_or_default();
    let passed = pairs
        .iter()
        .filter(|pair| pair.verdict.as_deref() == Some("pass"))
        .count();
    lines.push(format!("{passed} of {} pairs pass", pairs.len()));
    lines.extend(
        pairs
            .iter()
            .filter(|pair| pair.verdict.as_deref() != Some("pass"))
            .map(line),
    );
    lines
}

fn line(pair: &MeasuredPair) -> String {
    let MeasuredPair {
        round,
        a,
        b,
        verdict,
        edge,
        why,
        ..
    } = pair;
    let edge = edge
        .as_deref()
        .map(|edge| format!(" ({edge})"))
        .unwrap_or_default();
    let why = why
        .as_deref()
        .map(|why| format!("  {why}"))
        .unwrap_or_default();
    format!(
        "  round {round}  {a} and {b}  {}{edge}{why}",
        verdict.as_deref().unwrap_or("under way")
    )
}
