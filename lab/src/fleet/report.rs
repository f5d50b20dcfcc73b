//! Measurements of a run. A ratio is the actual time of a phase divided by the sum of its simulated
//! latencies. The part above 1 is queueing and Muster's own work.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::FleetOptions;
use super::follow::{Follower, Phase};
use super::usage::Usage;
use crate::simulated::habits::{Took, What};
use crate::simulated::rack::Rack;

/// The result of [`super::run`].
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub nodes: u32,
    pub speed: f64,
    pub failures: f64,
    pub kills: u32,
    /// Time to declare the nodes, in seconds.
    pub declared_s: f64,
    /// Seconds from the first declaration until the last node was done.
    pub lived_s: f64,
    pub nodes_per_s: f64,
    pub transitions: u64,
    pub transitions_per_s: f64,
    pub failed_steps: u64,
    /// Nodes with a failed step or a changed agent, excluded from the ratios.
    pub disturbed: usize,
    pub phases: BTreeMap<&'static str, Ratios>,
    pub usage: Usage,
}

/// Actual time of a phase compared with its ideal time, over all undisturbed nodes.
#[derive(Clone, Debug, Serialize)]
pub struct Ratios {
    pub nodes: usize,
    pub actual_s: f64,
    pub ideal_s: f64,
    /// Sum of the actual times divided by the sum of the ideal times.
    pub ratio: f64,
    pub median: f64,
    pub p99: f64,
}

/// Measurements of a run by the clock and the kernel.
pub(super) struct Run {
    pub declared: Duration,
    pub lived: Duration,
    pub kills: u32,
    pub usage: Usage,
}

pub(super) fn of(options: &FleetOptions, history: &Follower, rack: &Rack, run: Run) -> Report {
    let mut pairs: BTreeMap<Phase, Vec<(f64, f64)>> = BTreeMap::new();
    for node in history.nodes.values().filter(|node| !node.disturbed) {
        let ideals = ideals(&rack.machines[&node.name].took);
        for lap in &node.laps {
            let actual = lap.to.duration_since(lap.from).as_secs_f64();
            pairs
                .entry(lap.phase)
                .or_default()
                .push((actual, ideals.get(&lap.phase).copied().unwrap_or(0.0)));
        }
    }
    let lived = run.lived.as_secs_f64();
    Report {
        seed: options.habits.seed,
        nodes: options.nodes,
        speed: options.habits.speed,
        failures: options.habits.failures,
        kills: run.kills,
        declared_s: run.declared.as_secs_f64(),
        lived_s: lived,
        nodes_per_s: f64::from(options.nodes) / lived,
        transitions: history.transitions,
        transitions_per_s: history.transitions as f64 / lived,
        failed_steps: history.failed_steps,
        disturbed: history.nodes.values().filter(|node| node.disturbed).count(),
        phases: pairs
            .into_iter()
            .map(|(phase, pairs)| (title(phase), ratios(&pairs)))
            .collect(),
        usage: run.usage,
    }
}

/// Returns the ideal seconds of each phase. A power-off ends the first and the last phase,
/// admission to the scheduler ends the second.
fn ideals(took: &[Took]) -> BTreeMap<Phase, f64> {
    let mut ideals: BTreeMap<Phase, f64> = BTreeMap::new();
    let mut phase = Phase::Accept;
    for took in took {
        *ideals.entry(phase).or_default() += took.ms / 1000.0;
        phase = match (phase, took.what) {
            (Phase::Accept, What::PowerOff) => Phase::Serve,
            (Phase::Serve, What::Admit) => Phase::Release,
            (phase, _) => phase,
        };
    }
    ideals
}

fn ratios(pairs: &[(f64, f64)]) -> Ratios {
    let (actual_s, ideal_s) = pairs
        .iter()
        .fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    let mut each: Vec<f64> = pairs.iter().map(|(actual, ideal)| actual / ideal).collect();
    each.sort_by(f64::total_cmp);
    let at = |part: usize| each[(each.len() - 1) * part / 100];
    Ratios {
        nodes: pairs.len(),
        actual_s,
        ideal_s,
        ratio: actual_s / ideal_s,
        median: at(50),
        p99: at(99),
    }
}

fn title(phase: Phase) -> &'static str {
    match phase {
        Phase::Accept => "accept to available",
        Phase::Serve => "claim to in_service",
        Phase::Release => "release to available",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} nodes at speed {}, {:.1} % failures, {} kills; every node is where it should be, no promise was broken",
            self.seed,
            self.nodes,
            self.speed,
            self.failures * 100.0,
            self.kills
        )?;
        writeln!(
            f,
            "declared in {:.1} s, done in {:.1} s: {:.1} nodes/s, {:.0} transitions/s; {} steps failed on purpose or by a kill, {} nodes disturbed",
            self.declared_s,
            self.lived_s,
            self.nodes_per_s,
            self.transitions_per_s,
            self.failed_steps,
            self.disturbed
        )?;
        for (phase, ratios) in &self.phases {
            writeln!(
                f,
                "{phase:<21} {:>6} nodes, mean {:>7.2} s, ideal {:>7.2} s, ratio {:.2} (median {:.2}, p99 {:.2})",
                ratios.nodes,
                ratios.actual_s / ratios.nodes as f64,
                ratios.ideal_s / ratios.nodes as f64,
                ratios.ratio,
                ratios.median,
                ratios.p99
            )?;
        }
        write!(
            f,
            "server: {:.0} MiB resident, {:.0} MiB at its peak; load of this machine {:.1}",
            self.usage.server_mib, self.usage.server_peak_mib, self.usage.load
        )
    }
}
