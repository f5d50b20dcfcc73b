//! The detached process of a job: takes the lock, runs the work, writes the result as the last
//! line.

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_core::ids::JobId;
use muster_core::wire::node::{Failure, FailureCode, Line, Plan, Work, WorkResult};

use crate::failure::{fatal, retryable};
use crate::gates::Kept;
use crate::job::spool::{PLAN_MAX, Spool};
use crate::job::{JobContext, lock};
use crate::{converge, disk, files, gates, health};

/// Time for cancelled or overdue work to stop. After this time the process ends regardless. Tests
/// set a shorter time with `MUSTER_GRACE_S` (seconds).
const GRACE: Duration = Duration::from_secs(60);

/// Runs the job with the prepared spool. The process has no reader on its streams: every message
/// goes into the spool.
///
/// # Errors
/// Fails when the plan or the lock is missing; a result cannot be written in this case.
pub fn exec(job: JobId) -> Result<ExitCode, Failure> {
    // Fails when the process already leads a group, as under systemd: no session is left to leave.
    let _ = nix::unistd::setsid();
    let _lock = lock::take(job)?;
    let spool = Spool::of(job);
    let plan: Plan = files::read_json(&spool.plan(), PLAN_MAX)?
        .ok_or_else(|| fatal(FailureCode::NoPlan, "the job has no plan"))?;
    let cx = Arc::new(JobContext::spooled(
        &spool,
        Duration::from_secs(plan.timeout_s),
    )?);
    let ending = Arc::new(Mutex::new(()));
    watch(&spool, Arc::clone(&cx), Arc::clone(&ending));
    spool.set_worker(plan.attempt)?;

    let mut looks = Vec::new();
    let worked = std::panic::catch_unwind(AssertUnwindSafe(|| work(&plan, &cx, &mut looks)));
    let result = match worked {
        Ok(Ok(result)) => result,
        Ok(Err(failure)) => WorkResult::Failed(failure),
        Err(panic) => WorkResult::Failed(fatal(
            FailureCode::Bug,
            format!("muster-node panicked: {}", panic_text(panic.as_ref())),
        )),
    };
    let _ending = ending.lock().unwrap_or_else(PoisonError::into_inner);
    let code = finish(&cx, &spool, result)?;
    for look in &looks {
        // The result must stay the last line on disk. A look that cannot be saved is taken again.
        let _looked_at_again = look.write();
    }
    Ok(code)
}

fn work(plan: &Plan, cx: &JobContext, looks: &mut Vec<Kept>) -> Result<WorkResult, Failure> {
    match &plan.work {
        Work::WriteImage(image) => disk::write_image(plan, image, cx).map(WorkResult::ImageWritten),
        Work::Wipe(wipe) => disk::wipe(plan, wipe, cx).map(|disks| WorkResult::Wiped { disks }),
        Work::Converge(converge) => converge::run(converge, cx).map(WorkResult::Converged),
        Work::Gate(gate) => {
            // Continues without the saved suite: the verdict on this node's gates matters more than
            // a later `muster-node health`.
            if let Err(failure) = health::keep(gate) {
                cx.log(&format!(
                    "the suite for `muster-node health` could not be saved: {}",
                    failure.message
                ));
            }
            let ran = gates::run(gate, cx)?;
            *looks = ran.looks;
            Ok(WorkResult::Gated {
                results: ran.results,
                fingerprint: ran.fingerprint,
            })
        }
    }
}

fn finish(cx: &JobContext, spool: &Spool, result: WorkResult) -> Result<ExitCode, Failure> {
    let failed = matches!(result, WorkResult::Failed(_));
    let written = cx.finish(&Line::Result {
        at: cx.clock().now(),
        result: Box::new(result),
    });
    spool.forget_plan();
    written.map_err(crate::failure::io("writing the result"))?;
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Ends the process when the work hangs (a dead disk, a bug), because a job past its deadline must
/// release the lock. The watch checks the work's own context, so work inside [`JobContext::uncut`]
/// ignores a cancellation here too.
fn watch(spool: &Spool, cx: Arc<JobContext>, ending: Arc<Mutex<()>>) {
    let spool = spool.clone();
    let grace = std::env::var("MUSTER_GRACE_S")
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    let grace = grace.map_or(GRACE, Duration::from_secs);
    std::thread::spawn(move || {
        let mut overdue: Option<Instant> = None;
        loop {
            std::thread::sleep(Duration::from_secs(1));
            match (cx.check(), overdue) {
                (Ok(()), _) => overdue = None,
                (Err(_), None) => overdue = Some(Instant::now()),
                (Err(why), Some(since)) if since.elapsed() > grace => {
                    let _ending = ending.lock().unwrap_or_else(PoisonError::into_inner);
                    let text = format!(
                        "{}; the work did not stop within {} s",
                        why.message,
                        grace.as_secs()
                    );
                    let _ = finish(
                        &cx,
                        &spool,
                        WorkResult::Failed(retryable(FailureCode::Stuck, text)),
                    );
                    std::process::exit(1);
                }
                (Err(_), Some(_)) => {}
            }
        }
    });
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message").to_owned()
}
