//! The verb `run`: decides whether a plan may run, and starts its process.

use std::io::Read;
use std::time::{Duration, Instant};

use muster_core::ids::JobId;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, FailureCode, Plan, RunReply, WorkResult};

use super::spool::{self, PLAN_MAX, Spool};
use super::{detach, fence, lock};
use crate::failure::{fatal, io, retryable};

/// Longest time for a new process to take the lock; systemd on a loaded machine needs seconds.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the plan of `job` and starts the job detached, unless the job already runs or has ended.
///
/// # Errors
/// `usage`, `malformed` or `protocol` for an invalid plan, `start_failed` when the job's process
/// did not start.
pub fn run(job: JobId, attempt: i32, plan: impl Read) -> Result<RunReply, Failure> {
    let plan = read_plan(job, attempt, plan)?;
    let _admission = lock::admission()?;
    let spool = Spool::of(job);
    if let Some(stale) = fence::pass(&plan, &spool)? {
        return Ok(stale);
    }
    match settled(lock::alive)? {
        Some(other) if other != job => return Ok(RunReply::Busy { job: other }),
        Some(_) => {
            spool.set_attempt(attempt)?;
            return Ok(RunReply::Already { job, attempt });
        }
        None => {}
    }
    if is_over(&spool, attempt) {
        return Ok(RunReply::Already { job, attempt });
    }
    spool::prune(None);
    let restarted = spool.worker();
    spool.prepare(&plan)?;
    if let Some(worker) = restarted {
        super::context::note(
            &spool,
            &format!(
                "started again as attempt {attempt}; lines of attempt {} are in lines.old",
                worker.attempt
            ),
        )?;
    }
    detach::start(job)?;
    await_worker(&spool, attempt)
}

/// Whether the job needs no run: the job succeeded, or ended with any result under this attempt.
fn is_over(spool: &Spool, attempt: i32) -> bool {
    let same_attempt = spool
        .worker()
        .is_some_and(|worker| worker.attempt == attempt);
    match spool.result() {
        Some(WorkResult::Failed(_)) => same_attempt,
        Some(_) => true,
        None => false,
    }
}

fn read_plan(job: JobId, attempt: i32, plan: impl Read) -> Result<Plan, Failure> {
    let mut bytes = Vec::new();
    plan.take(PLAN_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(io("reading the plan"))?;
    if bytes.len() as u64 > PLAN_MAX {
        return Err(fatal(
            FailureCode::Malformed,
            format!("the plan is longer than {PLAN_MAX} bytes"),
        ));
    }
    // The protocol is checked first: a plan of another version may have another shape.
    #[derive(serde::Deserialize)]
    struct Head {
        protocol: u32,
    }
    let malformed = |error: serde_json::Error| {
        fatal(
            FailureCode::Malformed,
            format!("the plan is malformed: {error}"),
        )
    };
    let Head { protocol } = serde_json::from_slice(&bytes).map_err(malformed)?;
    if protocol != PROTOCOL {
        return Err(fatal(
            FailureCode::Protocol,
            format!("the plan has protocol {protocol}, this muster-node {PROTOCOL}"),
        ));
    }
    let plan: Plan = serde_json::from_slice(&bytes).map_err(malformed)?;
    match plan.job == job && plan.attempt == attempt {
        true => Ok(plan),
        false => Err(fatal(
            FailureCode::Usage,
            format!(
                "the plan is for job {} attempt {}, but the command names job {job} attempt {attempt}",
                plan.job, plan.attempt
            ),
        )),
    }
}

/// Repeats `look` for up to 2 s while a process is between taking the lock and writing its id.
fn settled<T>(look: impl Fn() -> Result<T, Failure>) -> Result<T, Failure> {
    let started = Instant::now();
    loop {
        match look() {
            Err(failure)
                if failure.code == FailureCode::Busy
                    && started.elapsed() < Duration::from_secs(2) =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            seen => return seen,
        }
    }
}

fn await_worker(spool: &Spool, attempt: i32) -> Result<RunReply, Failure> {
    let started = Instant::now();
    while started.elapsed() < START_TIMEOUT {
        if spool
            .worker()
            .is_some_and(|worker| worker.attempt == attempt)
        {
            return Ok(RunReply::Started {
                job: spool.job,
                attempt,
            });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(retryable(
        FailureCode::StartFailed,
        format!(
            "the job's process did not start within {} s",
            START_TIMEOUT.as_secs()
        ),
    ))
}
