//! The context of a job attempt: the order, the agent, the deadline, and the calls to the server
//! for permits and acts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::ids::PermitId;
use muster_core::values::Digest;
use muster_core::wire::calls::ActReply;
use muster_core::wire::job::{ActRecord, Job};
use muster_core::wire::members::ClusterMembers;
use muster_core::wire::node::{Answer, Challenge, Failure, FailureCode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agent::Agent;
use super::backoff;
use super::client::error::CallError;
use super::node_time::NodeTime;
use super::revocation::Revocation;
use super::voice::Voice;
use crate::blobs::HeldBlob;
use crate::watch::Watch;

/// An attempt of a job.
#[derive(Debug)]
pub struct JobContext {
    pub job: Job,
    pub agent: Arc<Agent>,
    /// Start time of the attempt on this agent.
    pub began: Timestamp,
    /// End of the attempt, by the local monotonic clock.
    pub deadline: Instant,
    /// Status and log of the attempt, sent with each renewal.
    pub voice: Arc<Voice>,
    /// The clock of the node, by the lines of muster-node.
    pub node_time: NodeTime,
    /// Blobs of the job, kept in the cache until the end of the attempt.
    held_blobs: Mutex<Vec<HeldBlob>>,
    /// The list of revoked keys in the order, on its way to the node.
    pub revocation: Revocation,
}

impl JobContext {
    /// Creates the context. The deadline starts now.
    pub fn new(job: Job, agent: Arc<Agent>) -> Self {
        let deadline = Instant::now() + Duration::from_secs(job.timeout_s);
        let voice = Arc::new(Voice::new(agent.clock.clone()));
        let began = agent.clock.now();
        Self {
            job,
            agent,
            began,
            deadline,
            voice,
            node_time: NodeTime::default(),
            held_blobs: Mutex::default(),
            revocation: Revocation::default(),
        }
    }

    /// Keeps a blob in the cache until the end of the attempt.
    pub fn hold_blob(&self, digest: Digest) {
        let held = self.agent.blobs.hold(digest);
        let mut blobs = self
            .held_blobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        blobs.push(held);
    }

    /// Returns the time left for the attempt.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Returns a watch for a wait of at most `time` and never longer than the job. The awaited
    /// condition of the wait becomes the awaited condition of the job.
    pub fn watch(&self, time: Duration) -> Watch {
        let voice = Arc::clone(&self.voice);
        let deadline = self.deadline.min(Instant::now() + time);
        // A cancelled job is dropped during the wait, so the watch needs no cancellation token.
        Watch::new(deadline, CancellationToken::new(), move |thing| {
            voice.waiting_for(thing)
        })
    }

    /// Returns the latest start of the given acts, as committed by an earlier attempt.
    pub fn former_act(&self, acts: &[&str]) -> Option<&ActRecord> {
        self.job
            .acts
            .iter()
            .rfind(|record| acts.contains(&record.act.as_str()))
    }

    /// Commits the start of a `once` act on the server. `Go` permits the act now and only once. The
    /// call waits for the server, because no act may start without the server.
    ///
    /// # Errors
    /// `server_away` when the deadline passes, or the refusal of the server.
    pub async fn start_act(&self, act: &str, before: &str) -> Result<ActReply, Failure> {
        let Job { id, attempt, .. } = self.job;
        let reply = backoff::until(self.deadline, || {
            self.agent.server.start_act(id, attempt, act, before)
        })
        .await;
        reply.map_err(|error| self.unheard(&format!("starting {act}"), &error))
    }

    /// Returns the current members of the cluster of the job.
    ///
    /// # Errors
    /// `server_away` when the deadline passes, or the refusal of the server.
    pub async fn list_members(&self) -> Result<ClusterMembers, Failure> {
        let Job { id, attempt, .. } = self.job;
        let listed = backoff::until(self.deadline, || {
            self.agent.server.list_members(id, attempt)
        })
        .await;
        listed.map_err(|error| self.unheard("asking for the cluster's members", &error))
    }

    /// Redeems a power permit for an action at this moment.
    ///
    /// # Errors
    /// `permit_refused` with the reason of the server, or `server_away`.
    pub async fn redeem_power(&self, permit: PermitId) -> Result<(), Failure> {
        match self.redeem(permit, None).await? {
            Answer::Granted { .. } => Ok(()),
            Answer::Refused { reason } => Err(fatal(
                FailureCode::PermitRefused,
                format!("the server refuses the power permit: {reason}"),
            )),
        }
    }

    /// Redeems a permit. Image and wipe permits need the challenge of the node. A refusal is a
    /// normal answer, passed on to the node.
    ///
    /// # Errors
    /// `server_away` when the deadline passes, or the error of the server when the server does not
    /// answer the request.
    pub async fn redeem(
        &self,
        permit: PermitId,
        challenge: Option<&Challenge>,
    ) -> Result<Answer, Failure> {
        let Job { id, attempt, .. } = self.job;
        let reply = backoff::until(self.deadline, || {
            self.agent
                .server
                .redeem_permit(id, attempt, permit, challenge.cloned())
        })
        .await;
        reply
            .map(|redeemed| redeemed.answer)
            .map_err(|error| self.unheard("redeeming a permit", &error))
    }

    fn unheard(&self, what: &str, error: &CallError) -> Failure {
        match error {
            CallError::Away(_) => failed(FailureCode::ServerAway, format!("{what}: {error}")),
            CallError::StaleEpoch | CallError::StaleAttempt => {
                failed(FailureCode::Stale, format!("{what}: {error}"))
            }
            CallError::Refused { code, detail, .. } => fatal(
                FailureCode::ServerRefused,
                format!("{what}: {code}: {detail}"),
            ),
            CallError::Garbled(_) => fatal(FailureCode::ServerGarbled, format!("{what}: {error}")),
        }
    }
}

/// Returns a retryable failure, because another attempt can succeed.
pub fn failed(code: FailureCode, message: impl Into<String>) -> Failure {
    Failure::retryable(code, message)
}

/// Returns a fatal failure, because another attempt would fail again.
pub fn fatal(code: FailureCode, message: impl Into<String>) -> Failure {
    Failure::fatal(code, message)
}
