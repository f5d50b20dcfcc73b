//! A session on a node that is up, or coming up.

use std::time::Duration;

use muster_core::wire::login::Login;
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::noticed::Noticed;
use tokio::time::Instant;

use crate::ssh::{ASKED_EVERY, Session, SshError};
use crate::work::context::{JobContext, failed, fatal};

/// One try; a machine that is up answers within a second, a loaded one within a few.
pub(super) const TRY: Duration = Duration::from_secs(15);
/// Until a machine is asked again that refused: its network is up, and its sshd comes within seconds.
const SOON: Duration = Duration::from_millis(250);
/// The same, when asking costs it a log-in.
const LATER: Duration = Duration::from_secs(1);

/// What another host key than the recorded one means at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherKey {
    /// The machine is not the one we mean.
    Refuse,
    /// The system before this one is still there: wait for its end.
    NotYet,
}

/// The session that the job before this one left, else a new one; tried until the job's deadline, and said so.
pub(super) async fn reach(
    context: &JobContext,
    login: &Login,
    other_key: OtherKey,
) -> Result<Session, Failure> {
    if let Some(session) = kept(context, login).await {
        return Ok(session);
    }
    let mut before = None;
    loop {
        let asked = Instant::now();
        let error = match Session::connect(login, TRY).await {
            Ok(session) => {
                noticed(context, before, session.opened());
                context.voice.moving();
                return Ok(session);
            }
            Err(error) => error,
        };
        let not_yet =
            matches!(error, SshError::HostKeyMismatch { .. }) && other_key == OtherKey::NotYet;
        if !(error.connection() || not_yet) {
            return Err(error.into());
        }
        context.voice.waiting_for(format!(
            "waiting for SSH on {} ({error})",
            context.job.node_name
        ));
        before = Some(away_at(&error, asked));
        tokio::time::sleep(pause_after(&error)).await;
    }
}

/// As [`reach`], for a system that is up as far as anybody knows: one that lets nobody in for a while is down, and the job's time is not spent on it.
pub(super) async fn reach_up(context: &JobContext, login: &Login) -> Result<Session, Failure> {
    let silent = context.agent.silent;
    match tokio::time::timeout(silent, reach(context, login, OtherKey::Refuse)).await {
        Ok(reached) => reached,
        Err(_) => {
            let last = context.voice.awaited().unwrap_or_default();
            let why = format!(
                "{} let nobody in for {} s; {last}",
                context.job.node_name,
                silent.as_secs()
            );
            Err(failed(FailureCode::SshUnreachable, why))
        }
    }
}

/// How soon a machine that did not let us in is asked again.
pub(super) fn pause_after(error: &SshError) -> Duration {
    match error {
        SshError::Unreachable { .. } => SOON,
        SshError::BadLogin(_)
        | SshError::HostKeyMismatch { .. }
        | SshError::AuthRefused(_)
        | SshError::Timeout { .. }
        | SshError::Lost(_)
        | SshError::Exit { .. }
        | SshError::TooMuch { .. } => LATER,
    }
}

/// What the job before this one left, if it is what this login leads to.
pub(super) async fn kept(context: &JobContext, login: &Login) -> Option<Session> {
    context
        .agent
        .sessions
        .take(context.job.node, context.job.epoch, login)
        .await
}

/// Leaves a session to the node's next job.
pub(super) fn keep(context: &JobContext, login: &Login, session: Session) {
    context
        .agent
        .sessions
        .keep(context.job.node, context.job.epoch, login, session);
}

/// When the machine is known not to have answered, of a try that began then and failed now: one that took no connection was asked to the end.
pub(super) fn away_at(error: &SshError, asked: Instant) -> Instant {
    match error {
        SshError::Unreachable { .. } => asked.max(Instant::now() - ASKED_EVERY),
        SshError::BadLogin(_)
        | SshError::HostKeyMismatch { .. }
        | SshError::AuthRefused(_)
        | SshError::Timeout { .. }
        | SshError::Lost(_)
        | SshError::Exit { .. }
        | SshError::TooMuch { .. } => asked,
    }
}

/// Logs how long a system that now answers may have done so before, and what the log-in took.
pub(super) fn noticed(context: &JobContext, before: Option<Instant>, opened: Instant) {
    if let Some(before) = before {
        let noticed = Noticed {
            late: opened.duration_since(before),
            log_in: opened.elapsed(),
        };
        context.voice.log(noticed.to_string());
    }
}

impl From<SshError> for Failure {
    /// muster-node tells why it failed as one JSON line on stderr; that is passed on as it is.
    fn from(error: SshError) -> Self {
        let message = error.to_string();
        match &error {
            SshError::Exit { stderr, .. } => serde_json::from_str(stderr)
                .unwrap_or_else(|_| failed(FailureCode::SshExit, message)),
            SshError::BadLogin(_) => fatal(FailureCode::SshBadLogin, message),
            SshError::Unreachable { .. } => failed(FailureCode::SshUnreachable, message),
            SshError::HostKeyMismatch { .. } => fatal(FailureCode::SshHostKeyMismatch, message),
            SshError::AuthRefused(_) => fatal(FailureCode::SshAuthRefused, message),
            SshError::Timeout { .. } => failed(FailureCode::SshTimeout, message),
            SshError::Lost(_) => failed(FailureCode::SshLost, message),
            SshError::TooMuch { .. } => fatal(FailureCode::SshTooMuchOutput, message),
        }
    }
}
