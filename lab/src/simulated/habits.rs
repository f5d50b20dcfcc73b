//! The behaviour of simulated machines: the duration of each job and the rate of failures. All
//! draws come from a seed, so a run can be repeated. A draw depends only on the seed, the machine's
//! name and the number of earlier draws by the machine.

use muster_core::gates::Verdict;
use muster_core::ids::JobId;
use muster_core::values::Digest;
use muster_core::wire::node::Failure;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::machine::Turn;

/// Share of permanent failures among the failed jobs. After a permanent failure a person must
/// inspect the machine.
const FATAL: f64 = 0.2;
/// Maximum factor between a draw and the median. A timeout is a different fault from a slow
/// machine.
const FURTHEST: f64 = 3.0;
/// Standard deviation of the logarithm of a user's job.
const JOB_SPREAD: f64 = 0.7;
/// Maximum factor between the time limit of a user's job and its length. Users ask for more time than
/// their jobs need.
const LONGEST_LIMIT: f64 = 2.0;

/// The behaviour shared by all machines of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Habits {
    /// Seed of all draws.
    pub seed: u64,
    /// Simulated seconds per real second.
    pub speed: f64,
    /// Share of failing jobs, from 0 to 1.
    pub failures: f64,
    /// Median length of the users' jobs on nodes in service, in simulated seconds. 0 for no jobs.
    #[serde(default)]
    pub job_s: f64,
}

/// The duration of a phase of a job on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Took {
    pub job: JobId,
    pub what: What,
    /// Duration in real milliseconds, at the speed of the run.
    pub ms: f64,
}

/// The phases that take time. The medians are typical of eight-GPU servers: firmware training two
/// terabytes of memory, an image of some gigabytes, a driver stack, and gates loading every GPU and
/// link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    BootLive,
    Inventory,
    PowerOff,
    Image,
    BootDisk,
    Converge,
    /// Converge without any change to make.
    Recheck,
    Gates,
    Admit,
    Drain,
    Remove,
    Wipe,
}

impl What {
    /// Returns the median in seconds, and the standard deviation of the duration's logarithm.
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
    /// Returns the duration of a phase, in real milliseconds. `draw` is the number of the draw.
    pub fn latency_ms(&self, name: &str, draw: u64, what: What) -> f64 {
        let (median_s, spread) = what.distribution();
        self.draw_ms(&mut self.dice(name, draw), median_s, spread)
    }

    /// Whether users run jobs on nodes in service.
    pub fn has_jobs(&self) -> bool {
        self.job_s > 0.0
    }

    /// Returns the length of a user's job and its time limit, in real milliseconds. `since_ms` is the
    /// time of the machine's admission, `number` the number of the job since then.
    pub fn user_job_ms(&self, name: &str, since_ms: i64, number: u64) -> (i64, i64) {
        let mut dice = self.dice(&format!("{name} {since_ms}"), number);
        let length = self.draw_ms(&mut dice, self.job_s, JOB_SPREAD);
        let limit = length * (1.0 + dice.random::<f64>() * (LONGEST_LIMIT - 1.0));
        (length.ceil() as i64, limit.ceil() as i64)
    }

    /// Draws a duration in real milliseconds, of a lognormal distribution.
    fn draw_ms(&self, dice: &mut StdRng, median_s: f64, spread: f64) -> f64 {
        // The Box-Muller method makes a normal draw from two uniform draws.
        let (radius, turn): (f64, f64) = (1.0 - dice.random::<f64>(), dice.random());
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * turn).cos();
        median_s * (spread * normal).exp().clamp(1.0 / FURTHEST, FURTHEST) * 1000.0 / self.speed
    }

    /// Returns the failure of the next job of a kind, or `None` if the job succeeds.
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
        job_s: 0.0,
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
