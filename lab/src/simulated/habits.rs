//! How machines behave: how long they take for what, and how often something goes wrong. Drawn from a seed, so that a run can be repeated:
//! what a machine draws depends on the seed, its name and how much it has drawn before, and on nothing else.

use muster_core::gates::Verdict;
use muster_core::ids::JobId;
use muster_core::values::Digest;
use muster_core::wire::node::Failure;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::machine::Turn;

/// Of a machine whose jobs fail now and then, this part fails for good: a person must look at it.
const FATAL: f64 = 0.2;
/// No draw is further from its median than by this factor: a timeout is another fault than a slow machine.
const FURTHEST: f64 = 3.0;

/// What a fleet's machines have in common.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Habits {
    pub seed: u64,
    /// Simulated seconds in a real one.
    pub speed: f64,
    /// The part of jobs that fail.
    pub failures: f64,
}

/// Something a machine took its time for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Took {
    pub job: JobId,
    pub what: What,
    /// Real milliseconds, at the speed of the run.
    pub ms: f64,
}

/// What takes time. Medians are those of eight-GPU servers: firmware that trains two terabytes of memory, an image of some gigabytes,
/// a driver stack, gates that load every GPU and link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    BootLive,
    Inventory,
    PowerOff,
    Image,
    BootDisk,
    Converge,
    /// Converge finds nothing to do.
    Recheck,
    Gates,
    Admit,
    Drain,
    Remove,
    Wipe,
}

impl What {
    /// Median in seconds, and the spread of its logarithm.
    fn distribution(self) -> (f64, f64) {
        match self {
            Self::BootLive => (300.0, 0.25),
            Self::Inventory | Self::PowerOff | Self::Admit => (20.0, 0.3),
            Self::Image => (120.0, 0.3),
            Self::BootDisk => (270.0, 0.25),
            Self::Converge => (240.0, 0.3),
            Self::Recheck => (15.0, 0.3),
            Self::Gates => (600.0, 0.2),
            Self::Drain => (30.0, 0.5),
            Self::Remove => (10.0, 0.3),
            Self::Wipe => (180.0, 0.4),
        }
    }
}

impl Habits {
    /// How long it takes, in real milliseconds.
    pub fn latency_ms(&self, name: &str, draw: u64, what: What) -> f64 {
        let (median_s, spread) = what.distribution();
        let mut dice = self.dice(name, draw);
        // Box and Muller's way from two even draws to a normal one.
        let (radius, turn): (f64, f64) = (1.0 - dice.random::<f64>(), dice.random());
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * turn).cos();
        median_s * (spread * normal).exp().clamp(1.0 / FURTHEST, FURTHEST) * 1000.0 / self.speed
    }

    /// How the next job of a kind goes, where it does not go well.
    pub fn turn(&self, name: &str, draw: u64, kind: &str) -> Option<Turn> {
        let mut dice = self.dice(name, draw);
        if !dice.random_bool(self.failures.clamp(0.0, 1.0)) {
            return None;
        }
        let fatal = dice.random_bool(FATAL);
        Some(match (kind, fatal) {
            ("gates", true) => Turn::Gates(Verdict::Fail),
            ("gates", false) => Turn::Gates(Verdict::Error),
            _ => Turn::Fails(Failure {
                code: "simulated".into(),
                message: format!("the simulated {kind} failed"),
                retryable: !fatal,
            }),
        })
    }

    fn dice(&self, name: &str, draw: u64) -> StdRng {
        StdRng::from_seed(Digest::of(format!("{} {name} {draw}", self.seed).as_bytes()).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HABITS: Habits = Habits {
        seed: 7,
        speed: 100.0,
        failures: 0.1,
    };

    #[test]
    fn a_seed_draws_the_same_again_and_names_draw_apart() {
        let draw = |habits: Habits, name| {
            (0..50)
                .map(|n| habits.latency_ms(name, n, What::Wipe))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(HABITS, "a"), draw(HABITS, "a"));
        assert_ne!(draw(HABITS, "a"), draw(HABITS, "b"));
        assert_ne!(draw(HABITS, "a"), draw(Habits { seed: 8, ..HABITS }, "a"));
    }

    #[test]
    fn draws_lie_around_their_median_and_fail_at_their_rate() {
        let mut latencies: Vec<f64> = (0..10_000)
            .map(|n| HABITS.latency_ms("a", n, What::BootLive))
            .collect();
        latencies.sort_by(f64::total_cmp);
        assert!(
            (2900.0..3100.0).contains(&latencies[5000]),
            "{}",
            latencies[5000]
        );
        assert!(latencies[0] >= 1000.0 && latencies[9999] <= 9000.0);
        assert!(latencies[9000] > 3500.0, "they spread: {}", latencies[9000]);
        let failures = (0..10_000)
            .filter(|n| HABITS.turn("a", *n, "wipe").is_some())
            .count();
        assert!((850..1150).contains(&failures), "{failures}");
    }
}
