//! Nodes that always have a next job. The jobs of a node depend on the seed only, so every way of
//! changing the cluster meets the same jobs.

/// Seconds of a step. Jobs and changes last whole steps.
pub(crate) const STEP_S: u64 = 60;
/// Seconds of the change of a node, with its reboot.
pub(crate) const CHANGE_S: u64 = 20 * 60;
/// Seconds of the gates after the change.
pub(crate) const GATES_S: u64 = 10 * 60;
/// The end of a run.
const HORIZON_S: u64 = 400 * 24 * 3600;
/// Seconds before the start in which the jobs of the nodes mix.
const MIXING_S: u64 = 14 * 24 * 3600;
/// Shortest and longest time limit of a job.
const LIMITS_S: (f64, f64) = (15.0 * 60.0, 48.0 * 3600.0);

/// The nodes whose gates fail after the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Faults {
    None,
    OneInTen,
    All,
}

impl Faults {
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OneInTen => "one_in_ten",
            Self::All => "all",
        }
    }
}

/// The jobs that a node may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Open,
    /// Jobs with a time limit of at most the seconds.
    Short(u64),
    Closed,
}

/// A running job, in seconds since the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub ends: u64,
    /// The end by the job's time limit, which the scheduler knows.
    pub latest: u64,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    number: u64,
    pub job: Option<Running>,
    pub door: Door,
    /// The gates fail after the change.
    pub is_faulty: bool,
    /// Jobs begun so far.
    begun: u64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Seconds until the last node is done, or until the run stops by itself.
    pub took_s: u64,
    /// Seconds of nodes without a job.
    pub idle_s: u64,
    pub done: usize,
    /// Nodes whose gates failed.
    pub broken: usize,
}

pub(crate) struct Cluster {
    seed: u64,
    pub machines: Vec<Machine>,
    /// Seconds since the start.
    pub now: u64,
    idle_s: u64,
}

impl Cluster {
    pub(crate) fn new(nodes: usize, seed: u64, faults: Faults) -> Self {
        let machine = |number: u64| {
            let is_faulty = match faults {
                Faults::None => false,
                Faults::OneInTen => draw(seed, number, u64::MAX) < 0.1,
                Faults::All => true,
            };
            let mut machine = Machine {
                number,
                job: None,
                door: Door::Open,
                is_faulty,
                begun: 0,
            };
            let mut at = 0;
            while at <= MIXING_S {
                let (limit, length) = machine.next_job(seed);
                machine.begun += 1;
                machine.job = Some(Running {
                    ends: (at + length).saturating_sub(MIXING_S),
                    latest: (at + limit).saturating_sub(MIXING_S),
                });
                at += length;
            }
            machine
        };
        Self {
            seed,
            machines: (0..nodes as u64).map(machine).collect(),
            now: 0,
            idle_s: 0,
        }
    }

    /// Ends jobs, begins the jobs that the doors allow, and moves the clock by a step. Returns false at
    /// the end of the horizon.
    pub(crate) fn advance(&mut self) -> bool {
        for machine in &mut self.machines {
            if machine.job.is_none() {
                machine.begin(self.seed, self.now);
            }
            if machine.job.is_none() {
                self.idle_s += STEP_S;
            }
        }
        self.now += STEP_S;
        for machine in &mut self.machines {
            machine.job = machine.job.filter(|job| job.ends > self.now);
            // The scheduler starts the next job at once.
            if machine.job.is_none() {
                machine.begin(self.seed, self.now);
            }
        }
        self.now < HORIZON_S
    }

    pub(crate) fn outcome(&self, done: usize, broken: usize) -> Outcome {
        Outcome {
            took_s: self.now,
            idle_s: self.idle_s,
            done,
            broken,
        }
    }
}

impl Machine {
    fn begin(&mut self, seed: u64, now: u64) {
        let (limit, length) = self.next_job(seed);
        let may_begin = match self.door {
            Door::Open => true,
            Door::Short(most) => limit <= most,
            Door::Closed => false,
        };
        if may_begin {
            self.begun += 1;
            self.job = Some(Running {
                ends: now + length,
                latest: now + limit,
            });
        }
    }

    /// Returns the time limit and the length of the next job, in seconds. Limits are spread evenly over
    /// the orders of magnitude, and a job uses 30 to 100 % of its limit.
    fn next_job(&self, seed: u64) -> (u64, u64) {
        let (shortest, longest) = LIMITS_S;
        let limit = shortest * (longest / shortest).powf(draw(seed, self.number, 2 * self.begun));
        let used = 0.3 + 0.7 * draw(seed, self.number, 2 * self.begun + 1);
        let steps = |seconds: f64| (seconds as u64).div_ceil(STEP_S) * STEP_S;
        (steps(limit), steps(limit * used))
    }
}

/// Returns a number from 0 to 1 (splitmix64).
fn draw(seed: u64, node: u64, index: u64) -> f64 {
    let mut state = seed
        .wrapping_add(node.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(index.wrapping_mul(0xd1b5_4a32_d192_ed03));
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((state ^ (state >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
