//! What one job has in hand: its order, the agent it works for, its deadline, and the server's word on permits and acts.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::ids::PermitId;
use muster_core::wire::calls::ActReply;
use muster_core::wire::job::{ActRecord, Job};
use muster_core::wire::members::ClusterMembers;
use muster_core::wire::node::{Answer, Challenge, Failure, FailureCode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agent::Agent;
use super::backoff;
use super::client::error::CallError;
use super::voice::Voice;
use crate::watch::Watch;

/// One attempt at one job.
#[derive(Debug)]
pub struct JobContext {
    pub job: Job,
    pub agent: Arc<Agent>,
    /// When the attempt began here.
    pub began: Timestamp,
    /// When the attempt is given up, on our own monotonic clock.
    pub deadline: Instant,
    pub voice: Arc<Voice>,
}

impl JobContext {
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
        }
    }

    /// Time left of the attempt.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Bounds for one wait of at most `time`, never beyond the job; what it awaits is told as the job's.
    pub fn watch(&self, time: Duration) -> Watch {
        let voice = Arc::clone(&self.voice);
        let deadline = self.deadline.min(Instant::now() + time);
        // A cancelled job is dropped where it waits: it needs no token of its own.
        Watch::new(deadline, CancellationToken::new(), move |sentence| {
            voice.waiting_for(sentence)
        })
    }

    /// The start of one of these acts that an earlier attempt committed; the latest one.
    pub fn former_act(&self, acts: &[&str]) -> Option<&ActRecord> {
        self.job
            .acts
            .iter()
            .rfind(|record| acts.contains(&record.act.as_str()))
    }

    /// Commits the start of a `once` act with the server. `Go` is the permission to do it now, once; it is waited for, because without the
    /// server nothing may be started.
    ///
    /// # Errors
    /// `server_away` when the deadline passes, or the server's refusal.
    pub async fn start_act(&self, act: &str, before: &str) -> Result<ActReply, Failure> {
        let Job { id, attempt, .. } = self.job;
        let reply = backoff::until(self.deadline, || {
            self.agent.server.start_act(id, attempt, act, before)
        })
        .await;
        reply.map_err(|error| self.unheard(&format!("starting {act}"), &error))
    }

    /// The members of the job's cluster, as of now.
    ///
    /// # Errors
    /// `server_away` when the deadline passes, or the server's refusal.
    pub async fn list_members(&self) -> Result<ClusterMembers, Failure> {
        let Job { id, attempt, .. } = self.job;
        let listed = backoff::until(self.deadline, || {
            self.agent.server.list_members(id, attempt)
        })
        .await;
        listed.map_err(|error| self.unheard("asking for the cluster's members", &error))
    }

    /// Redeems a power permit: the right to act at this moment.
    ///
    /// # Errors
    /// `permit_refused` with the server's reason, or `server_away`.
    pub async fn redeem_power(&self, permit: PermitId) -> Result<(), Failure> {
        match self.redeem(permit, None).await? {
            Answer::Granted { .. } => Ok(()),
            Answer::Refused { reason } => Err(fatal(
                FailureCode::PermitRefused,
                format!("the server refuses the power permit: {reason}"),
            )),
        }
    }

    /// Redeems a permit, for image and wipe with the node's challenge; a refusal is an answer too, for the node.
    ///
    /// # Errors
    /// `server_away` when the deadline passes, or the server's refusal to answer at all.
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

/// A failure that may pass by itself: another attempt can help.
pub fn failed(code: FailureCode, message: impl Into<String>) -> Failure {
    Failure::retryable(code, message)
}

/// A failure that another attempt would only meet again.
pub fn fatal(code: FailureCode, message: impl Into<String>) -> Failure {
    Failure::fatal(code, message)
}
