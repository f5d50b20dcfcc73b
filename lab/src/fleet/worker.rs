//! The agent process of the simulated machines. The process uses the real protocol with the real
//! listener, and is killed like a real agent.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use muster_core::wire::calls::{SiteConfig, SitePoll};
use muster_core::wire::job::Job;
use muster_core::wire::orders;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::identity;
use crate::simulated::agent::calls::{Answered, Call, Listener, Mark};
use crate::simulated::agent::{Agent, IMMORTAL, Stop};
use crate::simulated::keep::Keep;

/// Most concurrent jobs, as in a real agent.
const CAPACITY: usize = 2048;
const POLL_S: u64 = 30;
const CALLS: usize = 32;
/// Interval between two reports of the jobs.
const JOBS_EVERY: Duration = Duration::from_secs(5);
/// First pause before a call to an unreachable server is repeated. Each pause is twice the last, up
/// to [`LONGEST_PAUSE`], without a limit on attempts.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Options of an agent process.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// URL of the server's agent listener.
    pub server: String,
    pub token_file: PathBuf,
    /// The directory with the state of the simulated machines.
    pub machines: PathBuf,
}

/// Works until killed, or until another process takes over the agent's identity.
///
/// # Errors
/// When the start fails, or the server no longer accepts the agent.
pub async fn run(options: WorkerOptions) -> anyhow::Result<()> {
    let token = std::fs::read_to_string(&options.token_file)
        .with_context(|| format!("the token file {}", options.token_file.display()))?;
    let rack = Keep::open(&options.machines)?;
    let (http, url) = identity::enter(&options.server, &options.token_file, token.trim()).await?;
    let listener = Arc::new(Socket {
        http,
        url,
        calls: Semaphore::new(CALLS),
    });
    let agent = Agent::start(listener, token.trim(), Arc::new(Mutex::new(rack)), IMMORTAL).await;
    let agent = agent
        .map_err(|stop| anyhow::anyhow!("not welcome: {stop:?}"))?
        .at_the_real_pace();
    tracing::info!(epoch = agent.epoch, "welcome");
    tokio::try_join!(follow_site(&agent), follow_jobs(&agent), work(&agent)).map(drop)
}

/// Polls the site configuration. A real agent's boot services use the configuration; simulated
/// machines never boot from the agent, but the server must serve the same load.
async fn follow_site(agent: &Agent) -> anyhow::Result<()> {
    let mut have = None;
    loop {
        let poll = SitePoll {
            epoch: agent.epoch,
            have: have.clone(),
            wait_s: POLL_S,
        };
        match agent.call::<SiteConfig>("/agent/v1/site", &poll).await {
            Ok(config) => have = Some(config.revision),
            Err(stop) => go_on(&stop)?,
        }
    }
}

/// Reports the jobs of the simulated scheduler. Without reports, rollouts take no node.
async fn follow_jobs(agent: &Agent) -> anyhow::Result<()> {
    loop {
        if let Err(stop) = agent.report_jobs().await {
            go_on(&stop)?;
        }
        tokio::time::sleep(JOBS_EVERY).await;
    }
}

async fn work(agent: &Agent) -> anyhow::Result<()> {
    let mut running = JoinSet::new();
    loop {
        while running.try_join_next().is_some() || running.len() >= CAPACITY {
            if running.len() >= CAPACITY {
                running.join_next().await;
            }
        }
        let free = u32::try_from(CAPACITY - running.len()).unwrap_or(u32::MAX);
        match agent.lease(free, POLL_S).await {
            Ok(jobs) => jobs
                .into_iter()
                .for_each(|job| drop(running.spawn(one(agent.clone(), job)))),
            Err(stop) => go_on(&stop)?,
        }
    }
}

async fn one(agent: Agent, job: Job) {
    if let Err(stop) = agent.work(&job).await {
        tracing::warn!(job = %job.id, attempt = job.attempt, node = job.node_name, ?stop, "a job ends without an outcome");
    }
}

/// Returns an error when the process must end after a refused call.
fn go_on(stop: &Stop) -> anyhow::Result<()> {
    match stop {
        Stop::Refused(_, code) if code == "stale_epoch" => {
            anyhow::bail!("another process has taken over")
        }
        Stop::Refused(401 | 403, _) => anyhow::bail!("the certificate is not accepted"),
        stop => {
            tracing::warn!(?stop, "a poll was refused");
            Ok(())
        }
    }
}

/// The server's listener over HTTP.
struct Socket {
    http: reqwest::Client,
    url: String,
    /// Limits concurrent calls except polls: thousands of jobs share a few connections.
    calls: Semaphore,
}

impl Socket {
    async fn once(&self, call: &Call) -> reqwest::Result<Answered> {
        let mut request = self.http.post(format!("{}{}", self.url, call.path));
        for (name, value) in call.heard.iter().flat_map(Mark::headers) {
            request = request.header(name, value);
        }
        request = request.header(orders::ORDERS, orders::said());
        let answer = request
            .header("content-type", "application/json")
            .body(call.body.clone())
            .send()
            .await?;
        let mark = Mark::of(answer.headers());
        Ok(Answered {
            status: answer.status().as_u16(),
            mark,
            body: answer.bytes().await?.to_vec(),
        })
    }
}

impl Listener for Socket {
    fn post(&self, call: Call) -> BoxFuture<'_, Answered> {
        async move {
            let polls = ["/agent/v1/lease", "/agent/v1/site"].contains(&call.path.as_str());
            let _turn = match polls {
                true => None,
                false => Some(self.calls.acquire().await.expect("it is never closed")),
            };
            let mut pause = PAUSE;
            loop {
                match self.once(&call).await {
                    Ok(reply) if reply.status < 500 && reply.status != 429 => return reply,
                    Ok(reply) => {
                        tracing::warn!(call.path, reply.status, "the server asks to come back")
                    }
                    Err(error) => tracing::debug!(call.path, %error, "the server is away"),
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        .boxed()
    }
}
