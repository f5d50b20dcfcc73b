//! The report at the end of the main job: each node's timeline with step durations, the gates,
//! Muster's own share, and the output of the Slurm job.

use std::path::Path;

use anyhow::Context;
use muster_api::client::Client;
use muster_core::gates::{GateResult, Limit, Verdict};

use super::overhead::{self, Recorded};

/// Prints the report of a finished run, and writes Muster's share of each operation to
/// `overhead.json` in the run's directory.
pub(super) async fn print(
    client: &Client,
    nodes: &[&str],
    job: &str,
    dir: &Path,
) -> anyhow::Result<()> {
    for node in nodes {
        println!("\n=== {node}: timeline");
        for entry in client.node_timeline(node).await?.items {
            let took = entry
                .duration_ms
                .map_or(String::new(), |ms| format!("{:>8.1} s", ms as f64 / 1000.0));
            println!(
                "{}  {took:>10}  {}",
                entry.at.strftime("%H:%M:%S"),
                entry.summary
            );
        }
        for run in client.node_gate_runs(node).await?.items.iter().rev() {
            println!("--- {node}: gates of {}: {}", run.suite, run.verdict);
            run.results.iter().for_each(print_gate);
        }
    }
    let shares = Recorded::read(client, nodes).await?.shares();
    overhead::print(&shares);
    std::fs::write(
        dir.join("overhead.json"),
        overhead::told(&shares).to_string(),
    )
    .context("write overhead.json")?;
    println!("\n=== the admitted node, as Slurm saw it\n{job}");
    Ok(())
}

/// Prints a gate with the verdict and the missed limits.
pub(super) fn print_gate(result: &GateResult) {
    let verdict = match result.verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "FAIL",
        Verdict::Error => "ERROR",
        Verdict::Skipped => "skipped",
    };
    println!(
        "  {verdict:<8}{:<28}{:>7.1} s  {}",
        result.gate,
        result.duration_ms as f64 / 1000.0,
        result.reason
    );
    for measured in result
        .measured
        .iter()
        .filter(|measured| measured.verdict != Verdict::Pass)
    {
        let text = |limit: &Limit| match limit {
            Limit::Number(number) => number.to_string(),
            Limit::Text(text) => text.clone(),
        };
        println!(
            "          {} {} = {} {}, limit {}",
            measured.entity,
            measured.metric,
            text(&measured.value),
            measured.unit,
            text(&measured.limit)
        );
    }
}
