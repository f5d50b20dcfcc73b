//! `muster gate_run`.

use clap::{Args, Subcommand};
use muster_api::gate_runs::GateRun;
use muster_core::gates::Verdict;

use super::output::duration;
use super::session::Session;

/// Subcommands of gate runs.
#[derive(Debug, Subcommand)]
pub(crate) enum GateRunVerb {
    /// Show the latest gate runs of a node, with the verdict of each gate
    List(RunsArgs),
}

/// The node and the runs.
#[derive(Args, Debug)]
pub(crate) struct RunsArgs {
    node: String,
    /// Only failed runs, and in each run only the failed gates
    #[arg(long)]
    failed: bool,
    /// Maximum number of runs, newest first
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

pub(super) async fn run(session: &Session, verb: GateRunVerb) -> anyhow::Result<()> {
    let GateRunVerb::List(args) = verb;
    list(session, &args).await
}

/// Returns the latest runs of a node, newest first.
pub(super) async fn list(session: &Session, args: &RunsArgs) -> anyhow::Result<()> {
    let limit = args.limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    if args.failed {
        query.push(("filter", "verdict!=pass"));
    }
    let page = session
        .client
        .get_value(&["nodes", &args.node, "gate-runs"], &query)
        .await?;
    let mut runs: Vec<GateRun> = serde_json::from_value(page["items"].clone())?;
    if args.failed {
        runs.iter_mut()
            .for_each(|run| run.results.retain(|result| result.verdict != Verdict::Pass));
    }
    if runs.is_empty() {
        let what = if args.failed {
            "no run of gates ended otherwise than with pass"
        } else {
            "no gates were run"
        };
        session.output.note(&format!("{what} on this node"));
    }
    session
        .output
        .print_lines(&runs, || runs.iter().flat_map(lines).collect())
}

fn lines(run: &GateRun) -> Vec<String> {
    let mut lines = vec![format!(
        "{} {} at {}",
        run.suite, run.verdict, run.finished_at
    )];
    if let Some(at) = run.voided_at {
        lines.push(format!(
            "  void since {at}: parts were replaced, so the run does not describe the present parts"
        ));
    }
    for result in &run.results {
        let took = duration(i64::try_from(result.duration_ms).unwrap_or(i64::MAX));
        // The verdict is unchanged and printed beside the waiver counting in its place.
        let (word, waived) = match &result.waived {
            None => (result.verdict.as_str(), String::new()),
            Some(waived) => {
                let until = waived.until.strftime("%F %H:%M UTC");
                (
                    "waived",
                    format!(
                        "{}, waived until {until}: {}; ",
                        result.verdict.as_str(),
                        waived.reason
                    ),
                )
            }
        };
        lines.push(format!(
            "  {word:<8} {:<28} {took:>10}  {waived}{}",
            result.gate, result.reason
        ));
        if !result.finding.is_empty() {
            lines.push(format!("  {:<8} {}", "", result.finding));
        }
    }
    lines
}
