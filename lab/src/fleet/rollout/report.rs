//! Measurements of the rollouts of a fleet.

use std::fmt;
use std::time::Duration;

use anyhow::ensure;
use serde::Serialize;

use super::super::FleetOptions;
use super::observer::Observed;
use crate::simulated::rack::Rack;

/// The result of [`super::run`].
#[derive(Clone, Debug, Serialize)]
pub struct RolloutReport {
    pub seed: u64,
    pub nodes: u32,
    pub speed: f64,
    pub kills: u32,
    /// Seconds of the rollout to the new revision, and of the way back.
    pub forward_s: f64,
    pub back_s: f64,
    /// Jobs ended without an interruption.
    pub jobs: u64,
    /// Acts during a job.
    pub interrupted: Vec<String>,
    /// Mean seconds without a job for each change of a node.
    pub idle_s: f64,
    pub observed: Observed,
}

/// Measurements by the clock and by the observer.
pub(super) struct Run {
    pub forward: Duration,
    pub back: Duration,
    pub kills: u32,
    pub observed: Observed,
}

pub(super) fn of(options: &FleetOptions, rack: &Rack, run: Run) -> RolloutReport {
    let served: Vec<_> = rack
        .machines
        .values()
        .map(|machine| machine.served())
        .collect();
    let idle_ms: i64 = served.iter().map(|served| served.idle_ms).sum();
    let taken = run.observed.taken.max(1) as f64;
    RolloutReport {
        seed: options.habits.seed,
        nodes: options.nodes,
        speed: options.habits.speed,
        kills: run.kills,
        forward_s: run.forward.as_secs_f64(),
        back_s: run.back.as_secs_f64(),
        jobs: served.iter().map(|served| served.jobs).sum(),
        interrupted: served
            .iter()
            .flat_map(|served| served.interrupted.clone())
            .collect(),
        idle_s: idle_ms as f64 / 1000.0 / taken,
        observed: run.observed,
    }
}

impl RolloutReport {
    /// Checks the rules of the ledger, and the jobs.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.observed.check()?;
        ensure!(
            self.interrupted.is_empty(),
            "{} jobs were interrupted: {}",
            self.interrupted.len(),
            self.interrupted[..self.interrupted.len().min(20)].join("; ")
        );
        let expected = 2 * self.nodes as usize;
        let taken = self.observed.taken;
        ensure!(
            taken >= expected,
            "the observer saw {taken} of {expected} acts"
        );
        Ok(())
    }
}

impl fmt::Display for RolloutReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let observed = &self.observed;
        writeln!(
            f,
            "seed {}: {} nodes at speed {}, {} kills; two rollouts in {:.1} s and {:.1} s",
            self.seed, self.nodes, self.speed, self.kills, self.forward_s, self.back_s
        )?;
        writeln!(f, "{observed}")?;
        write!(
            f,
            "{} jobs ended whole, none was interrupted; a changed node had no job for {:.1} s ({:.0} simulated)",
            self.jobs,
            self.idle_s,
            self.idle_s * self.speed
        )
    }
}
