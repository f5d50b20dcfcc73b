//! `muster gate_run`.

use clap::Subcommand;
use muster_api::gate_runs::GateRun;

use super::output::duration;
use super::session::Session;

/// What can be asked of gate runs.
#[derive(Debug, Subcommand)]
pub(crate) enum GateRunVerb {
    /// Show the latest runs of a node's suite, each gate with its verdict.
    List { node: String },
}

pub(super) async fn run(session: &Session, verb: GateRunVerb) -> anyhow::Result<()> {
    let GateRunVerb::List { node } = verb;
    list(session, &node).await
}

/// The latest runs of a node, newest first.
pub(super) async fn list(session: &Session, node: &str) -> anyhow::Result<()> {
    let runs = session.client.node_gate_runs(node).await?;
    if runs.items.is_empty() {
        session.output.note("no gates were run on this node");
    }
    session.output.print_lines(&runs.items, || runs.items.iter().flat_map(lines).collect())
}

fn lines(run: &GateRun) -> Vec<String> {
    let mut lines = vec![format!("{} {} at {}", run.suite, run.verdict, run.finished_at)];
    for result in &run.results {
        let took = duration(i64::try_from(result.duration_ms).unwrap_or(i64::MAX));
        // The verdict stays what it was, and is told beside the waiver that counts in its place.
        let (word, waived) = match &result.waived {
            None => (result.verdict.as_str(), String::new()),
            Some(waived) => {
                let until = waived.until.strftime("%F %H:%M UTC");
                ("waived", format!("{}, waived until {until}: {}; ", result.verdict.as_str(), waived.reason))
            }
        };
        lines.push(format!("  {word:<8} {:<28} {took:>10}  {waived}{}", result.gate, result.reason));
    }
    lines
}
