//! The detached process itself: takes the lock, does the work, writes the result as the last line.

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

/// How long work may take to notice that it was cancelled or is over its deadline, before its process ends under it. Tests say less by `MUSTER_GRACE_S`.
const GRACE: Duration = Duration::from_secs(60);

/// Runs the job whose spool was prepared. Nobody listens to this process: all it has to say goes into the spool.
///
/// # Errors
/// When there is no plan or no lock: then there is nothing to write a result to.
pub fn exec(job: JobId) -> Result<ExitCode, Failure> {
    // Fails when we lead a group already, which is so under systemd: then there is no session to leave.
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
        // The result is on the disk, and nothing may stand behind it there. What cannot be kept is looked at again.
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
            // A verdict on this node's gates is worth more than what it is asked by later.
            if let Err(failure) = health::keep(gate) {
                cx.log(&format!(
                    "what `muster-node health` asks by is not kept: {}",
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

/// Ends this process when its work sticks (a dead disk, a bug): a job that is over its deadline must not keep the lock for ever. It goes by the work's
/// own context, which is not cancelled while the work does what must not be cut.
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
                        "{}; the work did not stop by itself within {} s",
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
