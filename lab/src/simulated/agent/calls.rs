//! The agent's calls: the real protocol, over a socket or without.

use futures::future::BoxFuture;
use muster_core::ids::{JobId, PermitId};
use muster_core::wire::PROTOCOL;
use muster_core::wire::calls::{
    ActReply, Hello, LeaseJobs, LeasedJobs, RedeemPermit, Redeemed, RenewJob, Renewed,
    ReportOutcome, StartAct, Welcome,
};
use muster_core::wire::headers::{HEARD, HEARD_SEAL, MARK, MARK_SEAL};
use muster_core::wire::job::Job;
use muster_core::wire::members::{AskMembers, ClusterMembers};
use muster_core::wire::node::{Answer, Challenge};
use muster_core::wire::result::Outcome;
use muster_core::wire::scheduler::{
    JobsLook, JobsReply, JobsReport, SchedulerReport, SchedulerWatch,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::machine::Machine;
use super::{Agent, Stop};

/// The server's listener for agents, over a socket or in process.
pub trait Listener: Send + Sync {
    /// Posts a call, and retries while the server is away.
    fn post(&self, call: Call) -> BoxFuture<'_, Answered>;
}

/// An event of the server, with the server's seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub event: String,
    pub seal: Option<String>,
}

impl Mark {
    /// Reads the mark of an answer, if the answer has one.
    pub fn of(headers: &http::HeaderMap) -> Option<Self> {
        let read = |name: &'static str| headers.get(name)?.to_str().ok().map(str::to_owned);
        Some(Self {
            event: read(MARK)?,
            seal: read(MARK_SEAL),
        })
    }

    /// Returns the headers of a call with this mark.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let event = (HEARD, self.event.clone());
        let seal = self.seal.clone().map(|seal| (HEARD_SEAL, seal));
        [Some(event), seal].into_iter().flatten().collect()
    }
}

/// A call of an agent.
#[derive(Clone, Debug)]
pub struct Call {
    pub path: String,
    pub token: String,
    /// The latest event mark that the agent keeps.
    pub heard: Option<Mark>,
    pub body: Vec<u8>,
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub struct Answered {
    pub status: u16,
    /// The event mark that the agent must keep from now on.
    pub mark: Option<Mark>,
    pub body: Vec<u8>,
}

impl Agent {
    /// Says hello as the same process, as after a lost answer.
    ///
    /// # Errors
    /// When the server refuses the agent.
    pub async fn hello_again(&self) -> Result<Welcome, Stop> {
        let hello = Hello {
            protocol: PROTOCOL,
            version: "simulated".into(),
            instance: self.instance.clone(),
        };
        self.call("/agent/v1/hello", &hello).await
    }

    /// Posts a call and parses the answer.
    pub async fn call<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Stop> {
        let body = serde_json::to_vec(body).expect("wire types are JSON");
        let heard = self
            .heard
            .lock()
            .expect("no holder of the lock panics")
            .clone();
        let call = Call {
            path: path.to_owned(),
            token: self.token.clone(),
            heard,
            body,
        };
        let Answered {
            status,
            mark,
            body: bytes,
        } = self.listener.post(call).await;
        if mark.is_some() {
            *self.heard.lock().expect("no holder of the lock panics") = mark;
        }
        if !(200..300).contains(&status) {
            return Err(Stop::refused(
                status,
                &serde_json::from_slice(&bytes).unwrap_or_default(),
            ));
        }
        // An empty body stands for `null`.
        let bytes: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(bytes).map_err(|error| Stop::Refused(status, error.to_string()))
    }

    /// Leases the ready jobs, or waits up to `wait_s` for the first ready jobs.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn lease(&self, capacity: u32, wait_s: u64) -> Result<Vec<Job>, Stop> {
        let leased: LeasedJobs = self
            .call(
                "/agent/v1/lease",
                &LeaseJobs {
                    epoch: self.epoch,
                    capacity,
                    wait_s,
                },
            )
            .await?;
        Ok(leased.jobs)
    }

    /// Renews the lease of a job; returns whether the job is cancelled.
    pub async fn renew(&self, job: &Job) -> Result<bool, Stop> {
        let waiting_for = Some(format!("the simulated {}", job.spec.kind()));
        let renew = RenewJob {
            epoch: self.epoch,
            attempt: job.attempt,
            progress: None,
            log: Vec::new(),
            waiting_for,
        };
        Ok(self
            .call::<Renewed>(&format!("/agent/v1/jobs/{}/renew", job.id), &renew)
            .await?
            .cancel)
    }

    pub async fn report(&self, job: JobId, attempt: i32, outcome: Outcome) -> Result<(), Stop> {
        let report = ReportOutcome {
            epoch: self.epoch,
            attempt,
            outcome,
        };
        self.call(&format!("/agent/v1/jobs/{job}/outcome"), &report)
            .await
    }

    pub async fn start_act(&self, job: &Job, act: &str, before: &str) -> Result<ActReply, Stop> {
        let start = StartAct {
            epoch: self.epoch,
            attempt: job.attempt,
            act: act.into(),
            before: before.into(),
        };
        self.call(&format!("/agent/v1/jobs/{}/act", job.id), &start)
            .await
    }

    pub async fn redeem(
        &self,
        job: &Job,
        permit: PermitId,
        challenge: Option<Challenge>,
    ) -> Result<Answer, Stop> {
        let request = RedeemPermit {
            epoch: self.epoch,
            job: job.id,
            attempt: job.attempt,
            permit,
            challenge,
        };
        Ok(self
            .call::<Redeemed>("/agent/v1/permits/redeem", &request)
            .await?
            .answer)
    }

    /// Reports the jobs of the simulated scheduler for every watched cluster.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn report_jobs(&self) -> Result<JobsReply, Stop> {
        let report = SchedulerReport {
            epoch: self.epoch,
            looks: Vec::new(),
        };
        let watch: SchedulerWatch = self.call("/agent/v1/scheduler", &report).await?;
        let jobs = {
            let mut rack = self.rack();
            let mut jobs = rack.scheduler.jobs.clone();
            jobs.extend(rack.machines.values_mut().filter_map(Machine::user_job));
            jobs
        };
        let look = |cluster| JobsLook {
            cluster,
            jobs: jobs.clone(),
            reservations: None,
        };
        let report = JobsReport {
            epoch: self.epoch,
            looks: watch
                .clusters
                .iter()
                .map(|watched| look(watched.id))
                .collect(),
        };
        let reply: JobsReply = self.call("/agent/v1/scheduler/jobs", &report).await?;
        self.rack().hold_back_jobs(&reply);
        Ok(reply)
    }

    pub async fn list_members(&self, job: &Job) -> Result<ClusterMembers, Stop> {
        let ask = AskMembers {
            epoch: self.epoch,
            attempt: job.attempt,
        };
        self.call(&format!("/agent/v1/jobs/{}/members", job.id), &ask)
            .await
    }
}
