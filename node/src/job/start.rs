//! The verb `run`: decides whether a plan may run, and starts its process.

use std::io::Read;
use std::time::{Duration, Instant};

use muster_core::ids::JobId;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, FailureCode, Plan, RunReply, WorkResult};

use super::spool::{self, PLAN_MAX, Spool};
use super::{detach, fence, lock};
use crate::failure::{fatal, io, retryable};

/// How long a new process may take until it holds the lock; a loaded machine's systemd needs seconds.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the plan of `job` and starts it detached, unless that is done already.
///
/// # Errors
/// `usage`, `malformed` or `protocol` for a plan that cannot be understood, `start_failed` when its process did not come up.
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

/// Whether there is nothing left to run: the job ended well, or it ended in any way under this very attempt.
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
    // The protocol is looked at first: another version's plan need not parse as ours.
    #[derive(serde::Deserialize)]
    struct Head {
        protocol: u32,
    }
    let malformed =
        |error: serde_json::Error| fatal(FailureCode::Malformed, format!("the plan: {error}"));
    let Head { protocol } = serde_json::from_slice(&bytes).map_err(malformed)?;
    if protocol != PROTOCOL {
        return Err(fatal(
            FailureCode::Protocol,
            format!("the plan speaks protocol {protocol}, this muster-node {PROTOCOL}"),
        ));
    }
    let plan: Plan = serde_json::from_slice(&bytes).map_err(malformed)?;
    match plan.job == job && plan.attempt == attempt {
        true => Ok(plan),
        false => Err(fatal(
            FailureCode::Usage,
            format!("the plan is for job {} attempt {}", plan.job, plan.attempt),
        )),
    }
}

/// Looks again while a process is between taking the lock and writing its name.
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
            "the job's process did not come up within {} s",
            START_TIMEOUT.as_secs()
        ),
    ))
}
