//! A simulated agent process: the real protocol with the real listener, and simulated machines. The rules are the rules of the real agent:
//! an act is committed first, and observed instead of repeated.
//! The process dies at any step, when its fuel is used up.

mod boots; // Jobs booting a machine, or adopting a machine
pub mod calls; // The calls of the protocol, and the listener
mod cluster; // Jobs for the scheduler
mod node_work; // Jobs done by muster-node

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use muster_core::ids::PermitId;
use muster_core::wire::calls::ActReply;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::node::{Answer, Failure, Work};
use muster_core::wire::result::{JobResult, Outcome};
use serde_json::Value;
use tokio::time::Instant;

use self::calls::{Listener, Mark};
use super::habits::What;
use super::machine::{Done, Machine, Running, Turn};
use super::rack::Rack;

/// Interval of lease renewals, and delay of the first progress report, as in the real agent.
const RENEW: Duration = Duration::from_secs(10);
const TELL_AFTER: Duration = Duration::from_secs(2);

/// Enough fuel for every test.
pub const IMMORTAL: u32 = u32::MAX;

/// The reason of a job without an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The process died.
    Dead,
    /// The server cancelled the job.
    Cancelled,
    /// The server refused the call, with status and code.
    Refused(u16, String),
}

impl Stop {
    fn refused(status: u16, body: &Value) -> Self {
        Self::Refused(status, body["code"].as_str().unwrap_or_default().to_owned())
    }
}

/// The end of a failed step: a failure, or a stop without an outcome.
pub(super) enum Bad {
    Fails(Failure),
    Stops(Stop),
}

impl From<Stop> for Bad {
    fn from(stop: Stop) -> Self {
        Self::Stops(stop)
    }
}

fn failed(code: &str) -> Bad {
    Bad::Fails(Failure {
        code: code.into(),
        message: format!("simulated: {code}"),
        retryable: true,
    })
}

pub(super) fn fatal(code: &str, message: String) -> Bad {
    Bad::Fails(Failure {
        code: code.into(),
        message,
        retryable: false,
    })
}

#[derive(Clone)]
pub struct Agent {
    listener: Arc<dyn Listener>,
    token: String,
    rack: Arc<Mutex<Rack>>,
    /// Locked while the scheduler's configuration is written.
    writing: Arc<tokio::sync::Mutex<()>>,
    pub epoch: i64,
    trusted: String,
    instance: String,
    /// Remaining steps of this process.
    fuel: Arc<AtomicU32>,
    /// Whether the process continues after a cancellation.
    deaf: Arc<AtomicBool>,
    /// Whether the process checks for cancellations before each job. The real agent does not; tests then need not wait for a renewal.
    asks_first: bool,
    /// The latest event from the server, stored on disk for the next process.
    pub heard: Arc<Mutex<Option<Mark>>>,
}

impl Agent {
    /// Starts a process and says hello.
    ///
    /// # Errors
    /// When the server rejects the agent.
    pub async fn start(
        listener: Arc<dyn Listener>,
        token: &str,
        rack: Arc<Mutex<Rack>>,
        fuel: u32,
    ) -> Result<Self, Stop> {
        let mut agent = Self {
            listener,
            token: token.to_owned(),
            rack,
            writing: Arc::default(),
            epoch: 0,
            trusted: String::new(),
            instance: uuid::Uuid::now_v7().to_string(),
            fuel: Arc::new(AtomicU32::new(fuel)),
            deaf: Arc::new(AtomicBool::new(false)),
            asks_first: true,
            heard: Arc::default(),
        };
        let welcome = agent.hello_again().await?;
        agent.epoch = welcome.epoch;
        agent.trusted = welcome.permit_public_key;
        Ok(agent)
    }

    /// The same, with the lease renewals of the real agent.
    pub fn at_the_real_pace(self) -> Self {
        Self {
            asks_first: false,
            ..self
        }
    }

    /// The same process, with another server at the same address.
    pub fn moved(&self, listener: Arc<dyn Listener>) -> Self {
        Self {
            listener,
            ..self.clone()
        }
    }

    /// Ignores cancellations until the next renewal, as if cancellations arrived late.
    pub fn refuse_to_stop(&self) {
        self.deaf.store(true, Ordering::SeqCst);
    }

    /// Sets the remaining steps.
    pub fn refuel(&self, steps: u32) {
        self.fuel.store(steps, Ordering::SeqCst);
    }

    /// Executes a leased job and reports the outcome.
    pub async fn work(&self, job: &Job) -> Result<Outcome, Stop> {
        self.step()?;
        let executed = match self.asks_first && self.is_cancelled(job).await? {
            true => Err(Bad::Stops(Stop::Cancelled)),
            false => self.execute(job).await,
        };
        let outcome = match executed {
            Ok(result) => Outcome::Succeeded { result },
            Err(Bad::Fails(failure)) => Outcome::Failed { failure },
            Err(Bad::Stops(Stop::Cancelled)) => {
                self.report(job.id, job.attempt, Outcome::Cancelled).await?;
                return Ok(Outcome::Cancelled);
            }
            Err(Bad::Stops(stop)) => return Err(stop),
        };
        self.step()?;
        self.report(job.id, job.attempt, outcome.clone()).await?;
        Ok(outcome)
    }

    async fn is_cancelled(&self, job: &Job) -> Result<bool, Stop> {
        Ok(self.renew(job).await? && !self.deaf.load(Ordering::SeqCst))
    }

    /// Waits for the machine, and keeps the lease meanwhile.
    pub(super) async fn done(&self, job: &Job) -> Result<(), Stop> {
        let mut renew_at = Instant::now() + if self.asks_first { RENEW } else { TELL_AFTER };
        loop {
            let left = self.with(job, |machine| machine.busy_for());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left.min(renew_at.saturating_duration_since(Instant::now()))).await;
            if Instant::now() >= renew_at {
                renew_at = Instant::now() + RENEW;
                if self.is_cancelled(job).await? {
                    return Err(Stop::Cancelled);
                }
            }
        }
    }

    /// Lets time pass on the machine for an act without a trace.
    pub(super) async fn takes(&self, job: &Job, what: What) -> Result<(), Stop> {
        self.with(job, |machine| machine.begin(job.id, what));
        self.done(job).await
    }

    /// Counts the next step of the process, while alive.
    pub(super) fn step(&self) -> Result<(), Stop> {
        let left = self
            .fuel
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
                IMMORTAL => Some(IMMORTAL),
                left => left.checked_sub(1),
            });
        left.map(drop).map_err(|_| Stop::Dead)
    }

    pub(super) fn rack(&self) -> MutexGuard<'_, Rack> {
        self.rack.lock().expect("nobody panics with it")
    }

    /// Reads or changes a machine.
    pub(super) fn with<T>(&self, job: &Job, act: impl FnOnce(&mut Machine) -> T) -> T {
        self.rack()
            .with(&job.node_name, act)
            .expect("every node has its machine")
    }

    async fn execute(&self, job: &Job) -> Result<JobResult, Bad> {
        let turn = match job.spec.kind() {
            // Gates have a separate turn on the node.
            "gates" => None,
            kind => self.with(job, |machine| machine.next_turn(kind)),
        };
        if let Some(Turn::Fails(failure)) = turn {
            return Err(Bad::Fails(failure));
        }
        self.let_in(job)?;
        match &job.spec {
            JobSpec::BootLive(spec) => self.boot_live(job, spec).await,
            JobSpec::Inventory { .. } => {
                self.takes(job, What::Inventory).await?;
                let facts = self.with(job, |machine| machine.facts());
                Ok(JobResult::Facts {
                    facts: Box::new(facts),
                })
            }
            JobSpec::PowerOff { permit, .. } => {
                if self.with(job, |machine| machine.running != Running::Off) {
                    let done = self.permitted(job, "power_off", *permit).await?;
                    self.step()?;
                    self.with(job, |machine| machine.power_off(done));
                }
                self.done(job).await?;
                Ok(JobResult::PoweredOff)
            }
            JobSpec::PowerOn { permit, .. } => self.power_on(job, *permit).await,
            JobSpec::PowerCycle { permit, .. } => self.power_cycle(job, *permit).await,
            JobSpec::RotateBmc(order) => self.rotate_bmc(job, order).await,
            JobSpec::Firmware(order) => self.firmware(job, order).await,
            JobSpec::WriteImage { plan, .. } => {
                self.run_on_node(job, Work::WriteImage(plan.clone())).await
            }
            JobSpec::Wipe { plan, .. } => {
                self.rack().wipes_begin(&job.node_name);
                self.run_on_node(job, Work::Wipe(plan.clone())).await
            }
            JobSpec::BootDisk { permit, login, .. } => self.boot_disk(job, *permit, login).await,
            JobSpec::Converge { plan, .. } => {
                self.run_on_node(job, Work::Converge(plan.clone())).await
            }
            JobSpec::Reboot { permit, .. } => self.reboot(job, *permit).await,
            JobSpec::Gates { plan, .. } => self.run_on_node(job, Work::Gate(plan.clone())).await,
            JobSpec::Admit { revision, name, .. } => self.admit(job, *revision, name).await,
            JobSpec::Adopt(adopt) => self.adopt(job, adopt),
            JobSpec::Pair(order) => self.pair(job, order).await,
            JobSpec::Drain { requeue, .. } => self.drain(job, *requeue).await,
            JobSpec::Remove { revision, name, .. } => self.remove(job, *revision, name).await,
        }
    }

    /// Redeems a power permit for an act still to be done.
    pub(super) async fn permitted(
        &self,
        job: &Job,
        act: &'static str,
        permit: PermitId,
    ) -> Result<Done, Bad> {
        self.step()?;
        let act = match self.with(job, |machine| machine.running.clone()) {
            Running::Off => act,
            _ if act == "power_on" => "reset",
            _ => act,
        };
        match self.redeem(job, permit, None).await? {
            Answer::Granted { .. } => {
                let (act, at) = (act.into(), jiff::Timestamp::default());
                Ok(Done {
                    act,
                    job: job.id,
                    permit,
                    epoch: job.epoch,
                    marked: None,
                    at,
                })
            }
            Answer::Refused { reason } => Err(fatal("permit_refused", reason)),
        }
    }

    /// Commits the start of an act; `None` if an earlier attempt started the act.
    pub(super) async fn once(&self, job: &Job, done: Done) -> Result<Option<Done>, Bad> {
        self.step()?;
        let before = self.with(job, |machine| machine.boot_id());
        match self.start_act(job, &done.act, &before).await? {
            ActReply::Go => {
                self.step()?;
                Ok(Some(done))
            }
            ActReply::Already(_) => Ok(None),
        }
    }
}
