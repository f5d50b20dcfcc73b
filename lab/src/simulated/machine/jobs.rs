//! Jobs of users on a simulated machine in service. Jobs follow each other without a pause until a
//! drain. Lengths come from the seed, so jobs need no storage.

use jiff::Timestamp;
use muster_core::clock::Clock;
use muster_core::ids::JobId;
use muster_core::wire::scheduler::ClusterJob;
use serde::{Deserialize, Serialize};

use super::super::habits::{Habits, What};
use super::Machine;

/// The time of a machine in the scheduler, in milliseconds since the epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Service {
    /// Start of the first job after the last pause. `None` outside the scheduler.
    since_ms: Option<i64>,
    /// Start of a drain, and of a reservation. No job starts afterwards. A real reservation lets short
    /// jobs start.
    drained_ms: Option<i64>,
    reserved_ms: Option<i64>,
    pause: Option<Pause>,
    /// The job of the last look. Recomputed by a new process.
    #[serde(skip)]
    at: Option<UserJob>,
    served: Served,
}

/// The time without jobs because of a drain or a reservation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Pause {
    /// End of the last job.
    since_ms: i64,
    /// Number of jobs since the last pause.
    jobs: u64,
}

/// The work of a machine for users, without the running job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// Jobs that ended by themselves.
    pub jobs: u64,
    /// Milliseconds without a job because of a drain or a reservation.
    pub idle_ms: i64,
    /// Acts that interrupted a job, with the job.
    pub interrupted: Vec<String>,
}

/// A job, by its number since the admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UserJob {
    number: u64,
    start_ms: i64,
    end_ms: i64,
    /// The end by the job's time limit.
    limit_ms: i64,
}

impl UserJob {
    fn new(habits: &Habits, machine: &str, since_ms: i64, number: u64, start_ms: i64) -> Self {
        let (length, limit) = habits.user_job_ms(machine, since_ms, number);
        Self {
            number,
            start_ms,
            end_ms: start_ms + length,
            limit_ms: start_ms + limit,
        }
    }
}

impl Service {
    /// Moves to the job of a time. Returns the job if it runs then.
    fn look(&mut self, habits: &Habits, machine: &str, now_ms: i64) -> Option<UserJob> {
        let since = self.since_ms?;
        let mut job = self
            .at
            .unwrap_or_else(|| UserJob::new(habits, machine, since, 0, since));
        while job.end_ms <= now_ms && !self.is_last(&job) {
            job = UserJob::new(habits, machine, since, job.number + 1, job.end_ms);
        }
        self.at = Some(job);
        (job.start_ms <= now_ms && now_ms < job.end_ms).then_some(job)
    }

    /// Whether no job starts after this one.
    fn is_last(&self, job: &UserJob) -> bool {
        let closed = [self.drained_ms, self.reserved_ms];
        closed.iter().flatten().any(|closed| job.end_ms >= *closed)
    }

    /// Begins a pause after the running job. Returns the end of the job.
    fn close(&mut self, habits: &Habits, machine: &str, now_ms: i64) -> i64 {
        self.look(habits, machine, now_ms);
        let last = self.at.map_or(now_ms, |last| last.end_ms);
        let pause = Pause {
            since_ms: last,
            jobs: self.at.map_or(0, |last| last.number + 1),
        };
        self.pause.get_or_insert(pause).since_ms
    }

    /// Ends a pause, unless a drain or a reservation is left. A running job goes on.
    fn reopen(&mut self, now_ms: i64) {
        if self.drained_ms.is_some() || self.reserved_ms.is_some() {
            return;
        }
        let pause = self.pause.take();
        if let Some(Pause { since_ms, jobs }) = pause.filter(|pause| pause.since_ms <= now_ms) {
            self.served.jobs += jobs;
            self.served.idle_ms += now_ms - since_ms;
            (self.since_ms, self.at) = (Some(now_ms), None);
        }
    }
}

impl Machine {
    /// Admits the machine to the scheduler, or ends a drain. Jobs start at once.
    pub fn serve(&mut self) {
        if !self.habits.is_some_and(|habits| habits.has_jobs()) {
            return;
        }
        let now = now_ms();
        self.service.drained_ms = None;
        self.service.since_ms.get_or_insert(now);
        self.service.reopen(now);
    }

    /// Begins a drain: the running job ends, no further job starts, then the drain is over.
    pub fn drain(&mut self, job: JobId) {
        self.begin(job, What::Drain);
        let habits = self.habits.filter(|habits| habits.has_jobs());
        if let (Some(habits), Some(_)) = (habits, self.service.since_ms) {
            let now = now_ms();
            let last = self.service.close(&habits, &self.name, now);
            self.service.drained_ms.get_or_insert(now);
            self.busy_until_ms = self.busy_until_ms.max(last);
        }
    }

    /// Begins or ends a reservation. Returns whether anything changed.
    pub fn hold_back_jobs(&mut self, waits: bool) -> bool {
        let habits = self.habits.filter(|habits| habits.has_jobs());
        let (Some(habits), Some(_)) = (habits, self.service.since_ms) else {
            return false;
        };
        if self.service.reserved_ms.is_some() == waits {
            return false;
        }
        let now = now_ms();
        if waits {
            self.service.close(&habits, &self.name, now);
            self.service.reserved_ms = Some(now);
        } else {
            self.service.reserved_ms = None;
            self.service.reopen(now);
        }
        true
    }

    /// Removes the machine from the scheduler. A pause goes on until the next admission.
    pub fn leave(&mut self) {
        let service = &mut self.service;
        let last = service.at.take().map_or(0, |last| last.number + 1);
        if service.pause.is_none() {
            service.served.jobs += last;
        }
        (service.since_ms, service.drained_ms, service.reserved_ms) = (None, None, None);
    }

    /// Returns the job of a user on the machine, as the scheduler lists it.
    pub fn user_job(&mut self) -> Option<ClusterJob> {
        let habits = self.habits.filter(|habits| habits.has_jobs())?;
        let job = self.service.look(&habits, &self.name, now_ms())?;
        Some(ClusterJob {
            id: format!("{}-{}", self.name, job.number),
            user: "ada".to_owned(),
            state: "RUNNING".to_owned(),
            ends: Timestamp::from_millisecond(job.limit_ms).ok(),
            nodes: vec![self.name.clone()],
            requeues: false,
        })
    }

    /// Returns the work for users so far.
    pub fn served(&self) -> &Served {
        &self.service.served
    }

    /// Records an act that stops the system while a job of a user runs.
    pub(super) fn interrupt(&mut self, act: &str) {
        if let Some(job) = self.user_job() {
            let line = format!("{} of {} by {act}", job.id, self.name);
            self.service.served.interrupted.push(line);
        }
    }
}

fn now_ms() -> i64 {
    Clock::System.now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use muster_core::values::Mac;

    use super::*;

    const HABITS: Habits = Habits {
        seed: 7,
        speed: 1.0,
        failures: 0.0,
        job_s: 3600.0,
    };

    /// A service since the time 0, drained at a time.
    fn service(drained_ms: Option<i64>) -> Service {
        Service {
            since_ms: Some(0),
            drained_ms,
            ..Service::default()
        }
    }

    #[test]
    fn jobs_follow_each_other_until_a_drain() {
        let mut serving = service(None);
        let first = serving.look(&HABITS, "a", 0).expect("a job at once");
        let next = serving.look(&HABITS, "a", first.end_ms).expect("the next");
        assert_eq!((next.number, next.start_ms), (1, first.end_ms));
        assert!(next.limit_ms >= next.end_ms, "{next:?}");
        let mut drained = service(Some(first.end_ms - 1));
        assert_eq!(drained.look(&HABITS, "a", first.end_ms - 1), Some(first));
        assert_eq!(drained.look(&HABITS, "a", first.end_ms), None);
    }

    #[test]
    fn a_pause_ends_with_its_last_cause() {
        let mut service = service(None);
        let last = service.close(&HABITS, "a", 10);
        (service.drained_ms, service.reserved_ms) = (Some(10), Some(20));
        service.reserved_ms = None;
        service.reopen(last + 500);
        assert_eq!(service.look(&HABITS, "a", last + 500), None);
        service.drained_ms = None;
        service.reopen(last + 700);
        assert!(service.look(&HABITS, "a", last + 700).is_some());
        let served = Served {
            jobs: 1,
            idle_ms: 700,
            interrupted: Vec::new(),
        };
        assert_eq!(service.served, served);
    }

    #[test]
    fn a_pause_outlasts_a_removal_from_the_scheduler() {
        let mut machine = Machine::new("a".to_owned(), Mac([0; 6])).with(HABITS);
        let now = now_ms();
        machine.service.since_ms = Some(now - 10_000);
        machine.service.pause = Some(Pause {
            since_ms: now - 5000,
            jobs: 3,
        });
        machine.service.drained_ms = Some(now - 7000);
        machine.leave();
        assert_eq!(machine.user_job(), None);
        machine.serve();
        assert!(machine.user_job().is_some());
        assert_eq!(machine.served().jobs, 3);
        assert!(machine.served().idle_ms >= 5000, "{:?}", machine.served());
    }

    #[test]
    fn a_new_process_finds_the_same_job() {
        let mut serving = service(None);
        let late = serving.look(&HABITS, "a", 90_000_000);
        assert!(late.is_some_and(|late| late.number > 5), "{late:?}");
        assert_eq!(service(None).look(&HABITS, "a", 90_000_000), late);
    }
}
