//! Follows work done by muster-node: starts the work, reads the output line by line, and answers
//! the request for a permit.
//!
//! The connection can break at any line, and the agent can crash. The node keeps the lines, and
//! reading continues at the last byte offset.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
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
use crate::ssh::lines::{BYTES_MAX, Lines};
use crate::ssh::{self, Session, SshError};
use crate::work::backoff::Backoff;
use crate::work::context::{JobContext, failed, fatal};

/// Number of connections without a new line after which the job counts as lost on the node.
const BARREN: u32 = 8;

/// The reason for the end of a connection.
enum Pause {
    /// The connection broke, or the node is busy. Try again after a pause.
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

/// Starts the work, or finds the work already running, and follows it to the result.
pub(in crate::work) async fn run(
    context: &JobContext,
    login: &Login,
    work: Work,
) -> Result<WorkResult, Failure> {
    let mut following = Following {
        work,
        offset: 0,
        unsent: None,
        fresh: false,
    };
    let mut backoff = Backoff::new(Duration::from_secs(15));
    let mut barren = 0;
    while barren < BARREN {
        // Gates and converges not yet seen running fail early on an unreachable node. Running work,
        // and work writing disks, may use all the time of the job.
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

/// Installs muster-node on the node and keeps the session for [`run`].
pub(in crate::work) async fn prepare(context: &JobContext, login: &Login) -> Result<(), Failure> {
    let session = reach_up(context, login).await?;
    ensure_node(context, &session, login).await?;
    keep(context, login, session);
    Ok(())
}

/// Returns whether later logins work as before the job. A converge with changes can have changed
/// the login.
fn lets_in_as_before(result: &WorkResult) -> bool {
    match result {
        WorkResult::ImageWritten(_) | WorkResult::Gated { .. } | WorkResult::Wiped { .. } => true,
        WorkResult::Converged(report) => report.clean(),
        WorkResult::Failed(_) => false,
    }
}

/// Stops the job on the node, in a single attempt, because the node also stops at the deadline of
/// the job.
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

/// The read position in the output of the node, and the answer not yet delivered.
struct Following {
    work: Work,
    /// Number of parsed bytes in the spool of the job.
    offset: u64,
    /// An answer of the server not yet confirmed by the node.
    unsent: Option<Answer>,
    /// This agent process started the work, so the lines are read as they are written. A line of
    /// work found running may be hours old, and tells no time.
    fresh: bool,
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
            if self.offset > BYTES_MAX {
                let why = format!("the job on the node printed more than {BYTES_MAX} bytes");
                return Err(fatal(FailureCode::SshTooMuchOutput, why).into());
            }
            match understood {
                Line::Progress(progress) => {
                    self.note_time(context, progress.at);
                    context.voice.progress(progress);
                }
                Line::Log { at, text } => {
                    self.note_time(context, at);
                    context.voice.log_at(LogLine { at, text });
                }
                Line::Challenge(challenge) => self.redeem(context, session, &challenge).await?,
                Line::Result { at, result } => {
                    self.note_time(context, at);
                    return Ok(*result);
                }
            }
        }
        Err(Pause::Again(
            "the node's lines ended before a result".into(),
        ))
    }

    /// Notes the time of a line, by the node's clock.
    fn note_time(&self, context: &JobContext, at: Timestamp) {
        if self.fresh {
            context.node_time.note(at, context.agent.clock.now());
        }
    }

    /// Starts the job and returns the lines from the offset. A repeated start of the same job and
    /// attempt is harmless, because the node answers `Already`.
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
                // The lines read before belonged to a deleted spool.
                self.unsent = None;
                self.fresh = true;
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
                    // The claimed attempt is older or equal, so the answer violates the protocol of
                    // muster-node.
                    false => FailureCode::NodeProtocol,
                };
                Err(fatal(code, newer).into())
            }
        }
    }

    /// Runs the job with the muster-node of this agent, and installs muster-node if missing or
    /// different.
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
            "job {job} to end on {}: one job changes a node at a time",
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

    /// Requests the redemption of the permit for the challenge of the node. Both grant and refusal
    /// are sent to the node.
    async fn redeem(
        &mut self,
        context: &JobContext,
        session: &Session,
        challenge: &Challenge,
    ) -> Result<(), Pause> {
        context.voice.waiting_for("the server to redeem the permit");
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
            // After a restart from offset 0 the challenge can be an old one already answered. If
            // the answer was needed, the result will show the failure.
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

/// Returns the digest of the muster-node still to be checked on the node, or `None`. A live image
/// contains muster-node and is trusted as a whole. Only an installed system, with the copy of its
/// last job, receives a new muster-node.
fn unseen_node(
    context: &JobContext,
    session: &Session,
    login: &Login,
) -> Result<Option<Digest>, SshError> {
    let digest = context.agent.node.digest;
    Ok((!ssh::is_live(login)? && !session.has_node(digest)).then_some(digest))
}

/// Installs the muster-node of this agent on the node, unless already present.
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
