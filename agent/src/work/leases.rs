//! Takes jobs from the server and runs each as a task of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use muster_core::ids::JobId;
use muster_core::wire::job::Job;
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::result::Outcome;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agent::Agent;
use super::backoff::{self, Backoff};
use super::client::leased::Unread;
use super::context::JobContext;
use super::job;

/// Jobs under way at once. They mostly wait, for firmware above all: a site's nodes must not wait for each other. What is heavy (image streams)
/// is bounded where it happens.
const CAPACITY: usize = 2048;
/// Well below the site's lease: each answer keeps it.
const POLL: Duration = Duration::from_secs(10);
/// A poll that came back empty sooner than this did not wait: the next one is held off, so that a server at fault is not hammered.
const EMPTY_TOO_SOON: Duration = Duration::from_secs(1);

/// Leases and runs jobs until `stop`; then every job is abandoned where it stands.
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
    loop {
        running.reap().await;
        let asked = Instant::now();
        let free = u32::try_from(CAPACITY - running.tasks.len()).expect("capacity is small");
        match agent.server.lease_jobs(free, POLL).await {
            Ok(leased) => {
                backoff.reset();
                if leased.jobs.is_empty()
                    && leased.unread.is_empty()
                    && asked.elapsed() < EMPTY_TOO_SOON
                {
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
                tracing::warn!(%error, "no jobs leased");
                agent.heed(&error);
                backoff.pause().await;
            }
        }
    }
}

/// Says of an order that it cannot be read here, so that nobody waits for its lease to end; another agent, or this one updated, may read it.
async fn refuse(agent: Arc<Agent>, order: Unread) -> JobId {
    let Unread { id, attempt, why } = order;
    tracing::error!(job = %id, attempt, why, "an order that cannot be read");
    let failure = Failure {
        code: FailureCode::OrderUnknown,
        message: why,
        retryable: true,
    };
    let outcome = Outcome::Failed { failure };
    let deadline = Instant::now() + agent.lease;
    if let Err(error) = backoff::until(deadline, || {
        agent.server.report_outcome(id, attempt, &outcome)
    })
    .await
    {
        agent.heed(&error);
    }
    id
}

/// The jobs under way.
#[derive(Default)]
struct Running {
    tasks: JoinSet<JobId>,
    /// The latest attempt of each.
    latest: HashMap<JobId, Attempt>,
    stop: CancellationToken,
}

struct Attempt {
    number: i32,
    stop: CancellationToken,
    done: CancellationToken,
}

impl Running {
    /// Forgets what has ended; when nothing more fits, waits until something ends.
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

    /// Starts a job. A later attempt at one that still runs here stops the earlier first, so that one process never acts twice at once.
    fn start(&mut self, job: Job, agent: &Arc<Agent>) {
        let (id, number) = (job.id, job.attempt);
        if self
            .latest
            .get(&id)
            .is_some_and(|attempt| attempt.number >= number && !attempt.done.is_cancelled())
        {
            tracing::warn!(job = %id, attempt = number, "leased a job that runs here already");
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
        let context = Arc::new(JobContext::new(job, Arc::clone(agent)));
        self.tasks.spawn(async move {
            let _done = done.drop_guard();
            if let Some(earlier) = earlier {
                earlier.stop.cancel();
                earlier.done.cancelled().await;
            }
            job::run(context, stop).await;
            id
        });
    }
}
