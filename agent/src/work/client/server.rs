//! The server API for an agent process. Every call carries the epoch returned by `hello`.

use std::time::Duration;

use muster_core::ids::{JobId, PermitId};
use muster_core::wire::calls::{
    ActReply, LeaseJobs, RedeemPermit, Redeemed, RenewJob, Renewed, ReportOutcome, Sighting,
    Sightings, SiteConfig, SitePoll, StartAct,
};
use muster_core::wire::consoles::{ConsoleChunk, ConsoleReport};
use muster_core::wire::headers::{KEYS_REVOKED, NODE_CLOCK};
use muster_core::wire::members::{AskMembers, ClusterMembers};
use muster_core::wire::node::Challenge;
use muster_core::wire::result::Outcome;
use muster_core::wire::scheduler::{
    ClusterLook, JobsLook, JobsReply, JobsReport, SchedulerReport, SchedulerWatch,
};

use super::error::CallError;
use super::leased::{Leased, Orders};
use super::{CALL, Client, Note};

/// Facts about a node, seen by a job beside its result.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenOnNode {
    /// The offset of the node's clock, where muster-node worked on the node.
    pub clock_ms: Option<i64>,
    /// The installed system refuses the revoked keys in the order.
    pub keys_are_revoked: bool,
}

/// A client with the epoch of this agent process.
#[derive(Clone, Debug)]
pub struct Server {
    pub client: Client,
    /// Epoch of this agent process, returned by `hello`.
    pub epoch: i64,
}

impl Server {
    /// Waits up to `wait` for a site configuration with another revision than `have`. Returns
    /// `None` when the revision is unchanged.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn poll_site(
        &self,
        have: Option<String>,
        wait: Duration,
    ) -> Result<Option<SiteConfig>, CallError> {
        let poll = SitePoll {
            epoch: self.epoch,
            have: have.clone(),
            wait_s: wait.as_secs(),
        };
        let bytes = self.client.post("site", &poll, wait + CALL).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let config: SiteConfig = serde_json::from_slice(&bytes)
            .map_err(|error| CallError::Garbled(format!("site: {error}")))?;
        Ok((have.as_ref() != Some(&config.revision)).then_some(config))
    }

    /// Waits up to `wait` for jobs. An unreadable order does not hold back the others.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn lease_jobs(&self, capacity: u32, wait: Duration) -> Result<Leased, CallError> {
        let lease = LeaseJobs {
            epoch: self.epoch,
            capacity,
            wait_s: wait.as_secs(),
        };
        let orders: Orders = self.client.ask("lease", &lease, wait + CALL).await?;
        Ok(Leased::from_orders(orders.jobs))
    }

    /// Commits the start of a `once` act.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn start_act(
        &self,
        job: JobId,
        attempt: i32,
        act: &str,
        before: &str,
    ) -> Result<ActReply, CallError> {
        let start = StartAct {
            epoch: self.epoch,
            attempt,
            act: act.to_owned(),
            before: before.to_owned(),
        };
        self.client
            .ask(&format!("jobs/{job}/act"), &start, CALL)
            .await
    }

    /// Lists the current members of the cluster changed by a job.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn list_members(
        &self,
        job: JobId,
        attempt: i32,
    ) -> Result<ClusterMembers, CallError> {
        let ask = AskMembers {
            epoch: self.epoch,
            attempt,
        };
        self.client
            .ask(&format!("jobs/{job}/members"), &ask, CALL)
            .await
    }

    /// Renews a job's lease. `within` is shorter than the lease, because a later answer is useless.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn renew_job(
        &self,
        job: JobId,
        renewal: &RenewJob,
        within: Duration,
    ) -> Result<Renewed, CallError> {
        self.client
            .ask(&format!("jobs/{job}/renew"), renewal, within)
            .await
    }

    /// Reports how a job ended, with the facts seen on the node. A repeated report is harmless.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn report_outcome(
        &self,
        job: JobId,
        attempt: i32,
        outcome: &Outcome,
        seen: SeenOnNode,
    ) -> Result<(), CallError> {
        let report = ReportOutcome {
            epoch: self.epoch,
            attempt,
            outcome: outcome.clone(),
        };
        let clock = seen.clock_ms.map(|value| Note {
            name: NODE_CLOCK,
            value,
        });
        let revoked = seen.keys_are_revoked.then_some(Note {
            name: KEYS_REVOKED,
            value: 1,
        });
        let notes: Vec<Note> = clock.into_iter().chain(revoked).collect();
        self.client
            .post_noted(&format!("jobs/{job}/outcome"), &report, CALL, &notes)
            .await
            .map(|_| ())
    }

    /// Redeems a permit just before its act.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn redeem_permit(
        &self,
        job: JobId,
        attempt: i32,
        permit: PermitId,
        challenge: Option<Challenge>,
    ) -> Result<Redeemed, CallError> {
        let redeem = RedeemPermit {
            epoch: self.epoch,
            job,
            attempt,
            permit,
            challenge,
        };
        self.client.ask("permits/redeem", &redeem, CALL).await
    }

    /// Reports sightings of machines on the wire.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn report_sightings(&self, sightings: Vec<Sighting>) -> Result<(), CallError> {
        self.client
            .post(
                "sightings",
                &Sightings {
                    epoch: self.epoch,
                    sightings,
                },
                CALL,
            )
            .await
            .map(|_| ())
    }

    /// Reports the nodes out of service according to their scheduler. Returns the clusters to watch
    /// next.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn report_scheduler(
        &self,
        looks: Vec<ClusterLook>,
    ) -> Result<SchedulerWatch, CallError> {
        self.client
            .ask(
                "scheduler",
                &SchedulerReport {
                    epoch: self.epoch,
                    looks,
                },
                CALL,
            )
            .await
    }

    /// Reports the jobs on the nodes of the watched clusters. Returns the nodes that wait for their
    /// change.
    ///
    /// # Errors
    /// [`CallError`]; a server of the version before has no such call, or an empty reply.
    pub async fn report_jobs(&self, looks: Vec<JobsLook>) -> Result<JobsReply, CallError> {
        let report = JobsReport {
            epoch: self.epoch,
            looks,
        };
        self.client.ask("scheduler/jobs", &report, CALL).await
    }

    /// Reports console output of nodes.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn report_consoles(&self, chunks: Vec<ConsoleChunk>) -> Result<(), CallError> {
        self.client
            .post(
                "consoles",
                &ConsoleReport {
                    epoch: self.epoch,
                    chunks,
                },
                CALL,
            )
            .await
            .map(|_| ())
    }
}
