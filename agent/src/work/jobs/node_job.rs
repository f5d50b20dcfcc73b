//! Work that muster-node does by itself: started, followed line by line, answered when it asks for its permit.
//!
//! The connection may break at any line and the agent may die: the node keeps the lines, and following goes on at the byte where it ended.

use std::time::Duration;

use bytes::Bytes;
use muster_core::ids::JobId;
use muster_core::values::Digest;
use muster_core::wire::PROTOCOL;
use muster_core::wire::calls::LogLine;
use muster_core::wire::login::Login;
use muster_core::wire::node::{
    Answer, Challenge, Failure, FailureCode, Line, Plan, RunReply, Version, Work, WorkResult,
};

use super::reach::{OtherKey, TRY, keep, reach, reach_up};
use crate::ssh::command::{Command, NOT_IN_PLACE};
use crate::ssh::lines::Lines;
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
pub(in crate::work) async fn run(
    context: &JobContext,
    login: &Login,
    work: Work,
) -> Result<WorkResult, Failure> {
    let mut following = Following {
        work,
        offset: 0,
        unsent: None,
    };
    let mut backoff = Backoff::new(Duration::from_secs(15));
    let mut barren = 0;
    while barren < BARREN {
        // What is seen to have begun goes on without us, and what writes disks may have: then there is as long as the job has time.
        let session = match (&following.work, following.offset, barren) {
            (Work::Gate(_) | Work::Converge(_), 0, 0) => reach_up(context, login).await?,
            _ => reach(context, login, OtherKey::Refuse).await?,
        };
        let before = following.offset;
        match following.follow(context, &session, login).await {
            Ok(result) => {
                if lets_in_as_before(&result) {
                    keep(context, login, session);
                }
                return Ok(result);
            }
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
    Err(failed(
        FailureCode::NodeJobLost,
        format!("following the node's work ended {BARREN} times without a new line"),
    ))
}

/// Has a session with muster-node in place ready for [`run`].
pub(in crate::work) async fn prepare(context: &JobContext, login: &Login) -> Result<(), Failure> {
    let session = reach_up(context, login).await?;
    ensure_node(context, &session, login).await?;
    keep(context, login, session);
    Ok(())
}

/// Whether the node is entered after this as it was before it: what a converge changes may be that.
fn lets_in_as_before(result: &WorkResult) -> bool {
    match result {
        WorkResult::ImageWritten(_) | WorkResult::Gated { .. } | WorkResult::Wiped { .. } => true,
        WorkResult::Converged(report) => report.clean(),
        WorkResult::Failed(_) => false,
    }
}

/// Tells the node to stop the job; one try, because the node stops by itself at the job's deadline too.
pub(super) async fn cancel(context: &JobContext, login: &Login) {
    let job = context.job.id;
    let told = async {
        Session::connect(login, TRY)
            .await?
            .exec(Command::Cancel { job }, Bytes::new())
            .await
    }
    .await;
    if let Err(error) = told {
        context
            .voice
            .log(format!("the node could not be told to stop: {error}"));
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
    async fn follow(
        &mut self,
        context: &JobContext,
        session: &Session,
        login: &Login,
    ) -> Result<WorkResult, Pause> {
        let mut lines = self.start(context, session, login).await?;
        self.send_answer(context, session).await?;
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
        Err(Pause::Again(
            "the node's lines ended before a result".into(),
        ))
    }

    /// Asking for the same job and attempt again is harmless: it answers `Already`. The lines that follow begin at the offset.
    async fn start(
        &mut self,
        context: &JobContext,
        session: &Session,
        login: &Login,
    ) -> Result<Lines, Pause> {
        let (reply, lines) = self.ask(context, session, login).await?;
        let reply = serde_json::from_slice(&reply).map_err(|error| {
            fatal(
                FailureCode::NodeProtocol,
                format!("the answer to run cannot be read: {error}"),
            )
        })?;
        match reply {
            RunReply::Started { job, .. } => {
                // Whatever was read before belonged to a spool that is gone.
                self.unsent = None;
                match std::mem::take(&mut self.offset) {
                    0 => Ok(lines),
                    _ => Ok(session.lines(Command::Attach { job, offset: 0 }).await?),
                }
            }
            RunReply::Already { .. } => Ok(lines),
            RunReply::Busy { job } => Err(self.wait_for_other(context, job)),
            RunReply::Stale { epoch, attempt } => {
                let newer = format!("the node already works on epoch {epoch}, attempt {attempt}");
                let code = match (epoch, attempt) > (context.job.epoch, context.job.attempt) {
                    true => FailureCode::StaleOnNode,
                    // It is not newer: whatever said so is no muster-node.
                    false => FailureCode::NodeProtocol,
                };
                Err(fatal(code, newer).into())
            }
        }
    }

    /// Runs the job by this agent's muster-node, which is put in place first where it is not.
    async fn ask(
        &self,
        context: &JobContext,
        session: &Session,
        login: &Login,
    ) -> Result<(Bytes, Lines), SshError> {
        let plan =
            Bytes::from(serde_json::to_vec(&self.plan(context)).expect("a plan is plain data"));
        let node = unseen_node(context, session, login)?;
        let (job, attempt, offset) = (context.job.id, context.job.attempt, self.offset);
        let command = Command::RunAttached {
            job,
            attempt,
            offset,
            node,
        };
        let said = match (session.fed_lines(command, plan.clone()).await, node) {
            (
                Err(SshError::Exit {
                    status: NOT_IN_PLACE,
                    ..
                }),
                Some(_),
            ) => {
                install_node(context, session).await?;
                session.fed_lines(command, plan).await?
            }
            (said, _) => said?,
        };
        node.inspect(|digest| session.note_node(*digest));
        Ok(said)
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
    async fn redeem(
        &mut self,
        context: &JobContext,
        session: &Session,
        challenge: &Challenge,
    ) -> Result<(), Pause> {
        context
            .voice
            .waiting_for("waiting for the server to redeem the permit");
        self.unsent = Some(context.redeem(challenge.permit, Some(challenge)).await?);
        self.send_answer(context, session).await
    }

    async fn send_answer(&mut self, context: &JobContext, session: &Session) -> Result<(), Pause> {
        let Some(answer) = &self.unsent else {
            return Ok(());
        };
        let answer = serde_json::to_vec(answer).expect("an answer is plain data");
        match session
            .exec(
                Command::Answer {
                    job: context.job.id,
                },
                answer.into(),
            )
            .await
        {
            Ok(_) => {}
            Err(error) if error.connection() => return Err(error.into()),
            // Read again from the start, a challenge may be one that was answered long ago. If it was not, the result says so.
            Err(error) => context
                .voice
                .log(format!("the node did not take the answer: {error}")),
        }
        self.unsent = None;
        context.voice.moving();
        Ok(())
    }
}

fn understand(line: &[u8]) -> Result<Line, Failure> {
    serde_json::from_slice(line).map_err(|error| {
        let start: String = String::from_utf8_lossy(line).chars().take(200).collect();
        fatal(
            FailureCode::NodeProtocol,
            format!("the node's line cannot be read ({error}): {start}"),
        )
    })
}

/// The muster-node that has yet to be seen in place. In a live image it is baked in and trusted with the image; only an installed system, whose
/// copy is as old as its last job, gets a new one.
fn unseen_node(
    context: &JobContext,
    session: &Session,
    login: &Login,
) -> Result<Option<Digest>, SshError> {
    let digest = context.agent.node.digest;
    Ok((!ssh::is_live(login)? && !session.has_node(digest)).then_some(digest))
}

/// Makes sure that the node has this agent's muster-node.
pub(super) async fn ensure_node(
    context: &JobContext,
    session: &Session,
    login: &Login,
) -> Result<(), SshError> {
    let Some(digest) = unseen_node(context, session, login)? else {
        return Ok(());
    };
    let installed = match session.exec(Command::Version, Bytes::new()).await {
        Ok(output) => serde_json::from_slice::<Version>(&output)
            .ok()
            .map(|version| version.digest),
        Err(SshError::Exit { .. }) => None,
        Err(error) => return Err(error),
    };
    if installed != Some(digest) {
        install_node(context, session).await?;
    }
    session.note_node(digest);
    Ok(())
}

async fn install_node(context: &JobContext, session: &Session) -> Result<(), SshError> {
    let node = &context.agent.node;
    context.voice.log(format!(
        "installing muster-node {} on {}",
        node.digest, context.job.node_name
    ));
    session
        .exec(
            Command::InstallNode {
                digest: node.digest,
            },
            node.bytes.clone(),
        )
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use muster_core::stacks::{ConvergeReport, ItemOutcome, ItemReport};

    use super::*;

    #[test]
    fn what_changed_a_system_may_have_changed_whom_it_lets_in() {
        let lets_in = |outcome| {
            let item = ItemReport {
                item: "file /etc/ssh/sshd_config".into(),
                outcome,
                before: None,
                after: None,
            };
            let report = ConvergeReport {
                lock: Digest([0; 32]),
                items: vec![item],
                reboot_for: Vec::new(),
            };
            lets_in_as_before(&WorkResult::Converged(report))
        };
        assert!(lets_in(ItemOutcome::Unchanged));
        assert!(!lets_in(ItemOutcome::Changed));
        assert!(!lets_in_as_before(&WorkResult::Failed(failed(
            FailureCode::Failed,
            "y"
        ))));
    }
}
