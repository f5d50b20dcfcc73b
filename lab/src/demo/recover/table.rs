//! The report at the end of the recovery scenarios: node, injected fault, attempted rungs, outcome
//! and duration.

use std::time::{Duration, Instant};

use anyhow::ensure;
use muster_api::recoveries::Recovery;

use super::super::watch::Watch;
use super::cast::rungs;

/// The result of each scenario, as table lines.
#[derive(Debug, Default)]
pub(super) struct Table {
    setup: Duration,
    lines: Vec<[String; 5]>,
    failed: Vec<String>,
}

impl Table {
    /// Records the time spent on building, adopting and converging the machines.
    pub(super) fn note_setup(&mut self, watch: &Watch) {
        self.setup = watch.elapsed();
    }

    /// Records a scenario with the expected outcome. The duration runs from `began` until now.
    pub(super) fn note(&mut self, node: &str, injected: &str, recovery: &Recovery, began: Instant) {
        let tried = rungs(recovery);
        let tried = if tried.is_empty() {
            "nothing".to_owned()
        } else {
            tried.join(", ")
        };
        let ended = recovery.ended.clone().unwrap_or_default();
        let took = format!("{} s", began.elapsed().as_secs());
        self.lines
            .push([node.to_owned(), injected.to_owned(), tried, ended, took]);
    }

    /// Records the end of a scenario. A failure is printed at once, and the scenario is listed by
    /// [`Table::print`].
    pub(super) fn end(&mut self, scenario: &str, told: anyhow::Result<()>) {
        if let Err(error) = told {
            println!("          {scenario}: {error:#}");
            self.failed.push(scenario.to_owned());
        }
    }

    /// Prints the table.
    ///
    /// # Errors
    /// When any scenario ended unexpectedly. The message names the failed scenarios.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        println!(
            "\n=== recoveries; the machines were in service after {} s",
            self.setup.as_secs()
        );
        let head = ["node", "injected", "rungs", "ended", "took"].map(str::to_owned);
        let all: Vec<&[String; 5]> = std::iter::once(&head).chain(&self.lines).collect();
        let width = |column: usize| all.iter().map(|line| line[column].len()).max().unwrap_or(0);
        for line in &all {
            let cells: Vec<String> = line
                .iter()
                .enumerate()
                .map(|(at, cell)| format!("{cell:<0$}", width(at)))
                .collect();
            println!("{}", cells.join("  ").trim_end());
        }
        ensure!(
            self.failed.is_empty(),
            "these did not end as they must: {}",
            self.failed.join("; ")
        );
        Ok(())
    }
}
