//! Leases jobs from the server and runs each job as a task.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use muster_core::ids::JobId;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::result::Outcome;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::agent::Agent;
use super::backoff::{self, Backoff};
use super::client::leased::Unread;
use super::client::server::SeenOnNode;
use super::context::JobContext;
use super::job;

/// Maximum number of parallel jobs. Jobs mostly wait, above all for firmware, and the nodes of a
/// site must not wait for each other. The connections of the HTTP listener limit image streams.
const CAPACITY: usize = 2048;
/// Wait time of a poll, well below the site lease, because each answer renews the site lease.
const POLL: Duration = Duration::from_secs(10);
/// An empty answer earlier than this means a server without waiting. The next poll is delayed, so
/// that a faulty server is not overloaded.
const EMPTY_TOO_SOON: Duration = Duration::from_secs(1);

/// Leases and runs jobs until `stop`. Then all jobs are abandoned in their current state.
pub(super) async fn run(agent: Arc<Agent>, stop: CancellationToken) {
    let mut running = Running {
        stop: stop.child_token(),
        ..Running::default()
    };
    stop.run_until_cancelled(poll(&agent, &mut running)).await;
    running.stop.cancel();
    while running.tasks.join_next().await.is_some() {}
}

async fn poll(agent: &Arc<Agent>, running: &mut Running) {
    let mut backoff = Backoff::new(Duration::from_secs(15));
    // The jobs of an earlier process are leased without waiting, until an empty answer.
    let mut wait = Duration::ZERO;
    loop {
        running.reap().await;
        let asked = Instant::now();
        let free = u32::try_from(CAPACITY - running.tasks.len()).expect("capacity is small");
        match agent.server.lease_jobs(free, wait).await {
            Ok(leased) => {
                backoff.reset();
                let is_empty = leased.jobs.is_empty() && leased.unread.is_empty();
                if is_empty && wait.is_zero() {
                    agent.boots.end_leases();
                    agent.blobs.begin_bound();
                    wait = POLL;
                } else if is_empty && asked.elapsed() < EMPTY_TOO_SOON {
                    backoff.pause().await;
                }
                for job in leased.jobs {
                    running.start(job, agent);
                }
                for order in leased.unread {
                    running.tasks.spawn(refuse(Arc::clone(agent), order));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "lease call failed; retrying");
                agent.heed(&error);
                backoff.pause().await;
            }
        }
    }
}

/// Reports an unreadable order as failed, so that the server does not wait for the end of the
/// lease. Another agent or a newer version may read the order.
async fn refuse(agent: Arc<Agent>, order: Unread) -> JobId {
    let Unread { id, attempt, why } = order;
    tracing::error!(job = %id, attempt, why, "order not readable by this version; the job is reported as failed; update the agent");
    let failure = Failure {
        code: FailureCode::OrderUnknown,
        message: why,
        retryable: true,
    };
    let outcome = Outcome::Failed { failure };
    let deadline = Instant::now() + agent.lease;
    if let Err(error) = backoff::until(deadline, || {
        agent
            .server
            .report_outcome(id, attempt, &outcome, SeenOnNode::default())
    })
    .await
    {
        agent.heed(&error);
    }
    id
}

/// The running jobs.
#[derive(Default)]
struct Running {
    tasks: JoinSet<JobId>,
    /// The latest attempt of each job.
    latest: HashMap<JobId, Attempt>,
    stop: CancellationToken,
}

struct Attempt {
    number: i32,
    stop: CancellationToken,
    done: CancellationToken,
}

impl Running {
    /// Removes finished jobs. At full capacity, waits until a job ends.
    async fn reap(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            self.forget(ended.ok());
        }
        if self.tasks.len() >= CAPACITY
            && let Some(ended) = self.tasks.join_next().await
        {
            self.forget(ended.ok());
        }
    }

    fn forget(&mut self, job: Option<JobId>) {
        if let Some(job) = job
            && self
                .latest
                .get(&job)
                .is_some_and(|attempt| attempt.done.is_cancelled())
        {
            self.latest.remove(&job);
        }
    }

    /// Starts a job. A newer attempt first stops the running older attempt, so that a process never
    /// acts twice at the same time.
    fn start(&mut self, job: Job, agent: &Arc<Agent>) {
        let (id, number) = (job.id, job.attempt);
        if self
            .latest
            .get(&id)
            .is_some_and(|attempt| attempt.number >= number && !attempt.done.is_cancelled())
        {
            tracing::warn!(job = %id, attempt = number, "leased job ignored: the same or a later attempt is already running");
            return;
        }
        let (stop, done) = (self.stop.child_token(), CancellationToken::new());
        let earlier = self.latest.insert(
            id,
            Attempt {
                number,
                stop: stop.clone(),
                done: done.clone(),
            },
        );
        if let JobSpec::BootLive(spec) = &job.spec {
            agent.boots.expect(spec);
        }
        let span = job::span_of(&job);
        let context = Arc::new(JobContext::new(job, Arc::clone(agent)));
        let running = async move {
            let _done = done.drop_guard();
            if let Some(earlier) = earlier {
                earlier.stop.cancel();
                earlier.done.cancelled().await;
            }
            job::run(context, stop).await;
            id
        };
        self.tasks.spawn(running.instrument(span));
    }
}
