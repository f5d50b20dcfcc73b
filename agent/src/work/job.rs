//! Runs a job from lease to outcome. The job acts only while the lease is held, reports its
//! progress, and ends with a single outcome.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use muster_core::wire::calls::RenewJob;
use muster_core::wire::job::Job;
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::result::{JobResult, Outcome};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::client::error::CallError;
use super::client::server::SeenOnNode;
use super::context::{JobContext, failed, fatal};
use super::{backoff, evidence, jobs};

/// Delay before new log lines are reported, so that a chatty job needs a call every two seconds
/// instead of a hundred.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// The reason for the end of a job.
#[derive(Debug)]
pub(super) enum End {
    Done(Result<JobResult, Failure>),
    /// The server requested a stop.
    Cancelled,
    /// The job now belongs to another attempt or agent, or to none. No outcome is reported.
    Lost(CallError),
}

/// Returns the span of an attempt, with the operation and the request behind the job. A span at the
/// level `error` is kept by every filter, so a warning always carries the fields.
pub(super) fn span_of(job: &Job) -> Span {
    let origin = job.origin.as_ref();
    let operation = origin.map(|origin| tracing::field::display(origin.operation));
    tracing::error_span!(
        parent: None,
        "job",
        node = job.node_name,
        operation,
        request_id = origin.and_then(|origin| origin.request_id.as_deref()),
        job = %job.id,
        attempt = job.attempt,
        kind = job.spec.kind(),
    )
}

/// Runs an attempt until its end. `stop` abandons the attempt without an outcome, and the next
/// attempt continues the work.
pub async fn run(context: Arc<JobContext>, stop: CancellationToken) {
    tracing::info!("job started");
    let end = tokio::select! {
        biased;
        () = stop.cancelled() => return tracing::info!("job abandoned: the attempt was stopped without an outcome"),
        result = guarded(jobs::execute(&context)) => End::Done(result),
        end = keep_lease(&context) => end,
        () = tokio::time::sleep_until(context.deadline) => End::Done(Err(timed_out(&context))),
    };
    let outcome = match end {
        End::Done(Ok(result)) => Outcome::Succeeded { result },
        End::Done(Err(failure)) => {
            tokio::select! {
                biased;
                () = stop.cancelled() => return tracing::info!("job abandoned: the attempt was stopped without an outcome"),
                // The failure is reported even if the collection panics, or if the lease ends
                // first.
                _collected = AssertUnwindSafe(evidence::collect(&context)).catch_unwind() => {}
                _ended = keep_lease(&context) => {}
            }
            Outcome::Failed { failure }
        }
        End::Cancelled => {
            jobs::cancel(&context).await;
            Outcome::Cancelled
        }
        End::Lost(error) => return lost(&context, &error),
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = report(&context, outcome) => {}
    }
}

/// Runs the work and converts a panic to a failure. A panic is a bug of the agent and not of the
/// node: only the job fails, and the agent continues.
async fn guarded(
    work: impl Future<Output = Result<JobResult, Failure>>,
) -> Result<JobResult, Failure> {
    AssertUnwindSafe(work)
        .catch_unwind()
        .await
        .unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_else(|| "a panic without a message".into());
            tracing::error!(
                text,
                "job panicked: a bug in the agent; report the text to the maintainers"
            );
            Err(failed(FailureCode::AgentBug, text))
        })
}

fn timed_out(context: &JobContext) -> Failure {
    let seconds = context.job.timeout_s;
    match context.voice.awaited() {
        Some(thing) => failed(
            FailureCode::Timeout,
            format!("after {seconds} s still waiting for {thing}"),
        ),
        None => failed(
            FailureCode::Timeout,
            format!("not finished after {seconds} s"),
        ),
    }
}

/// Renews the lease until an event ends the job. After two thirds of the lease without an answer, a
/// job that could act at the same time as its next attempt stops itself. All other jobs continue,
/// so that a short outage of the server does not break a booting machine.
pub(super) async fn keep_lease(context: &JobContext) -> End {
    let lease = context.agent.lease;
    let mut heard = Instant::now();
    let mut due = lease / 3;
    loop {
        tokio::select! {
            () = tokio::time::sleep(due) => {}
            () = async {
                context.voice.changed().await;
                tokio::time::sleep(TELL_AFTER).await;
            } => {}
        }
        let asked = Instant::now();
        let unheard = match renew(context, lease / 6).await {
            Ok(true) if jobs::may_be_stopped(&context.job.spec) => return End::Cancelled,
            Ok(_) => {
                (heard, due) = (asked, lease / 3);
                continue;
            }
            Err(error) if error.stale() => return End::Lost(error),
            Err(error) => error,
        };
        due = lease / 12;
        tracing::warn!(error = %unheard, "job lease not renewed; retrying");
        if heard.elapsed() >= lease * 2 / 3 && jobs::acts_unasked(&context.job.spec) {
            let silent = format!(
                "no word from the server for {} s, so this job stopped acting: {unheard}",
                heard.elapsed().as_secs()
            );
            return End::Done(Err(failed(FailureCode::LeaseLost, silent)));
        }
    }
}

/// Renews the lease and reports new text. Returns whether the server requested a stop.
async fn renew(context: &JobContext, within: Duration) -> Result<bool, CallError> {
    let said = context.voice.report();
    let renewal = RenewJob {
        epoch: context.agent.server.epoch,
        attempt: context.job.attempt,
        progress: said.progress.clone(),
        log: said.log.clone(),
        waiting_for: said.waiting_for.clone(),
    };
    let renewed = context
        .agent
        .server
        .renew_job(context.job.id, &renewal, within)
        .await?;
    context.voice.told(&said);
    Ok(renewed.cancel)
}

/// Reports the outcome until the server accepts it. Gives up at the deadline of the job, but at the
/// earliest after the time of a lease.
async fn report(context: &JobContext, outcome: Outcome) {
    let (id, attempt) = (context.job.id, context.job.attempt);
    match &outcome {
        Outcome::Succeeded { .. } => tracing::info!("job succeeded"),
        Outcome::Failed { failure } => {
            tracing::warn!(code = %failure.code, failure = failure.message, "job failed")
        }
        Outcome::Cancelled => tracing::info!("job cancelled"),
    }
    context.voice.moving();
    match renew(context, context.agent.lease / 6).await {
        Err(error) if error.stale() => return lost(context, &error),
        Err(error) => {
            tracing::debug!(%error, "last log lines not delivered to the server")
        }
        Ok(_cancel_comes_too_late) => {}
    }
    let deadline = context.deadline.max(Instant::now() + context.agent.lease);
    let server = &context.agent.server;
    let seen = SeenOnNode {
        clock_ms: context.node_time.offset_ms(),
        keys_are_revoked: context.revocation.is_held(),
    };
    let tell = |outcome| {
        backoff::until(deadline, move || {
            server.report_outcome(id, attempt, outcome, seen)
        })
    };
    let told = tell(&outcome).await;
    let refused = refused_result(&told, &outcome);
    let told = match &refused {
        // Without an outcome the server would lease the job again, for the same result.
        Some(refused) => tell(refused).await,
        None => told,
    };
    if let Err(error) = told {
        lost(context, &error);
    }
}

/// Returns the outcome of a job whose result the server refuses for its content, for example a
/// result that is too large. `None` for any other answer: a server that refuses the agent says
/// nothing about the result.
fn refused_result(told: &Result<(), CallError>, outcome: &Outcome) -> Option<Outcome> {
    let (
        Err(CallError::Refused {
            status: 400 | 413 | 422,
            code,
            detail,
        }),
        Outcome::Succeeded { .. },
    ) = (told, outcome)
    else {
        return None;
    };
    let message = format!("the server refused the result of the job: {code}: {detail}");
    let failure = fatal(FailureCode::ServerRefused, message);
    tracing::warn!(
        failure = failure.message,
        "result refused by the server; the job fails"
    );
    Some(Outcome::Failed { failure })
}

fn lost(context: &JobContext, error: &CallError) {
    tracing::warn!(%error, "job ended without a reported outcome");
    context.agent.heed(error);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_fails_the_job_and_nothing_else() {
        let failure = guarded(async { panic!("index {} out of bounds", 7) })
            .await
            .unwrap_err();
        assert_eq!(
            failure,
            failed(FailureCode::AgentBug, "index 7 out of bounds")
        );
    }
}
