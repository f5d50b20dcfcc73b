//! Work that muster-node does by itself: started, followed line by line, answered when it asks for its permit.
//!
//! The connection may break at any line and the agent may die: the node keeps the lines, and following goes on at the byte where it ended.

use std::time::Duration;

use bytes::Bytes;
use muster_core::ids::JobId;
use muster_core::wire::PROTOCOL;
use muster_core::wire::agent::{LogLine, Login};
use muster_core::wire::node::{Answer, Challenge, Failure, Line, Plan, RunReply, Version, Work, WorkResult};

use super::reach::{OtherKey, TRY, reach};
use crate::ssh::command::Command;
use crate::ssh::{self, Session, SshError};
use crate::work::backoff::Backoff;
use crate::work::context::{JobContext, failed, fatal};

/// Times that following may end without a single new line before the job is taken for lost on the node.
const BARREN: u32 = 8;

/// How one connection's worth of following ended.
enum Pause {
    /// The connection broke, or the node is busy: go on after a pause.
    Again(String),
    Failed(Failure),
}

impl From<SshError> for Pause {
    fn from(error: SshError) -> Self {
        match error.connection() {
            true => Self::Again(error.to_string()),
            false => Self::Failed(error.into()),
        }
    }
}

impl From<Failure> for Pause {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Starts the work, or finds it running, and follows it to its result.
pub(in crate::work) async fn run(context: &JobContext, login: &Login, work: Work) -> Result<WorkResult, Failure> {
    let mut following = Following { work, offset: 0, unsent: None };
    let mut backoff = Backoff::new(Duration::from_secs(15));
    let mut barren = 0;
    while barren < BARREN {
        let session = reach(context, login, OtherKey::Refuse).await?;
        let before = following.offset;
        match following.follow(context, &session, login).await {
            Ok(result) => return Ok(result),
            Err(Pause::Failed(failure)) => return Err(failure),
            Err(Pause::Again(why)) => context.voice.log(format!("following again: {why}")),
        }
        match following.offset == before {
            true => barren += 1,
            false => {
                barren = 0;
                backoff.reset();
            }
        }
        backoff.pause().await;
    }
    Err(failed("node_job_lost", format!("following the node's work ended {BARREN} times without a new line")))
}

/// Tells the node to stop the job; one try, because the node stops by itself at the job's deadline too.
pub(super) async fn cancel(context: &JobContext, login: &Login) {
    let job = context.job.id;
    let told = async { Session::connect(login, TRY).await?.exec(Command::Cancel { job }, Bytes::new()).await }.await;
    if let Err(error) = told {
        context.voice.log(format!("the node could not be told to stop: {error}"));
    }
}

/// How far the node's lines were read, and the answer that has yet to arrive.
struct Following {
    work: Work,
    /// Bytes of the job's spool that were understood.
    offset: u64,
    /// An answer the server gave that the node may not have.
    unsent: Option<Answer>,
}

impl Following {
    async fn follow(&mut self, context: &JobContext, session: &Session, login: &Login) -> Result<WorkResult, Pause> {
        ensure_node(context, session, login).await?;
        self.start(context, session).await?;
        self.send_answer(context, session).await?;
        let job = context.job.id;
        let mut lines = session.lines(Command::Attach { job, offset: self.offset }).await?;
        while let Some(line) = lines.next().await? {
            let understood = understand(&line)?;
            self.offset += line.len() as u64;
            match understood {
                Line::Progress(progress) => context.voice.progress(progress),
                Line::Log { at, text } => context.voice.log_at(LogLine { at, text }),
                Line::Challenge(challenge) => self.redeem(context, session, &challenge).await?,
                Line::Result { result, .. } => return Ok(*result),
            }
        }
        Err(Pause::Again("the node's lines ended before a result".into()))
    }

    /// Asking for the same job and attempt again is harmless: it answers `Already`.
    async fn start(&mut self, context: &JobContext, session: &Session) -> Result<(), Pause> {
        let (job, attempt) = (context.job.id, context.job.attempt);
        let plan = serde_json::to_vec(&self.plan(context)).expect("a plan is plain data");
        let output = session.exec(Command::Run { job, attempt }, plan.into()).await?;
        let reply = serde_json::from_slice(&output)
            .map_err(|error| fatal("node_protocol", format!("the answer to run cannot be read: {error}")))?;
        match reply {
            RunReply::Started { .. } => {
                // Whatever was read before belonged to a spool that is gone.
                self.offset = 0;
                self.unsent = None;
                Ok(())
            }
            RunReply::Already { .. } => Ok(()),
            RunReply::Busy { job } => Err(self.wait_for_other(context, job)),
            RunReply::Stale { epoch, attempt } => {
                let newer = format!("the node already works on epoch {epoch}, attempt {attempt}");
                Err(fatal("stale_on_node", newer).into())
            }
        }
    }

    fn wait_for_other(&self, context: &JobContext, job: JobId) -> Pause {
        context.voice.waiting_for(format!(
            "waiting for job {job} to end on {}: one job changes a node at a time",
            context.job.node_name
        ));
        Pause::Again(format!("job {job} runs there"))
    }

    fn plan(&self, context: &JobContext) -> Plan {
        Plan {
            protocol: PROTOCOL,
            job: context.job.id,
            attempt: context.job.attempt,
            node: context.job.node,
            epoch: context.job.epoch,
            timeout_s: context.remaining().as_secs(),
            work: self.work.clone(),
        }
    }

    /// The server's word on the node's challenge; a yes and a no are both passed on.
    async fn redeem(&mut self, context: &JobContext, session: &Session, challenge: &Challenge) -> Result<(), Pause> {
        context.voice.waiting_for("waiting for the server to redeem the permit");
        self.unsent = Some(context.redeem(challenge.permit, Some(challenge)).await?);
        self.send_answer(context, session).await
    }

    async fn send_answer(&mut self, context: &JobContext, session: &Session) -> Result<(), Pause> {
        let Some(answer) = &self.unsent else { return Ok(()) };
        let answer = serde_json::to_vec(answer).expect("an answer is plain data");
        match session.exec(Command::Answer { job: context.job.id }, answer.into()).await {
            Ok(_) => {}
            Err(error) if error.connection() => return Err(error.into()),
            // Read again from the start, a challenge may be one that was answered long ago. If it was not, the result says so.
            Err(error) => context.voice.log(format!("the node did not take the answer: {error}")),
        }
        self.unsent = None;
        context.voice.moving();
        Ok(())
    }
}

fn understand(line: &[u8]) -> Result<Line, Failure> {
    serde_json::from_slice(line).map_err(|error| {
        let start: String = String::from_utf8_lossy(line).chars().take(200).collect();
        fatal("node_protocol", format!("the node's line cannot be read ({error}): {start}"))
    })
}

/// Makes sure that the node has this agent's muster-node. In a live image it is baked in and trusted with the image; only an installed
/// system, whose copy is as old as its last job, gets a new one.
pub(super) async fn ensure_node(context: &JobContext, session: &Session, login: &Login) -> Result<(), SshError> {
    if ssh::is_live(login)? {
        return Ok(());
    }
    let node = &context.agent.node;
    let installed = match session.exec(Command::Version, Bytes::new()).await {
        Ok(output) => serde_json::from_slice::<Version>(&output).ok().map(|version| version.digest),
        Err(SshError::Exit { .. }) => None,
        Err(error) => return Err(error),
    };
    if installed != Some(node.digest) {
        context.voice.log(format!("installing muster-node {} on {}", node.digest, context.job.node_name));
        session.exec(Command::InstallNode { digest: node.digest }, node.bytes.clone()).await?;
    }
    Ok(())
}
