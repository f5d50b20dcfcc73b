//! Opens a session on a running or starting node.

use std::time::Duration;

use muster_core::wire::login::Login;
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::noticed::Noticed;
use tokio::time::Instant;

use super::revoke;
use crate::ssh::{ASKED_EVERY, Session, SshError};
use crate::work::context::{JobContext, failed, fatal};

/// Time limit of an attempt. A running machine answers within a second, a loaded machine within a
/// few.
pub(super) const TRY: Duration = Duration::from_secs(15);
/// Pause after an attempt without a TCP connection. A machine that refuses has its network up, and
/// its sshd starts within seconds.
const SOON: Duration = Duration::from_millis(250);
/// Pause after a failed login, because each further attempt costs the machine a login.
const LATER: Duration = Duration::from_secs(1);

/// The meaning of a host key different from the recorded key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherKey {
    /// The machine is not the expected machine.
    Refuse,
    /// The previous system is still running. Wait for its end.
    NotYet,
}

/// Returns the session kept by the previous job, or opens a new session. Retries until the deadline
/// of the job and reports the wait.
pub(super) async fn reach(
    context: &JobContext,
    login: &Login,
    other_key: OtherKey,
) -> Result<Session, Failure> {
    if let Some(session) = kept(context, login).await {
        revoke::write_list(context, login, &session).await;
        return Ok(session);
    }
    let mut before = None;
    loop {
        let asked = Instant::now();
        let error = match Session::connect(login, TRY).await {
            Ok(session) => {
                noticed(context, before, session.opened());
                context.voice.moving();
                revoke::write_list(context, login, &session).await;
                return Ok(session);
            }
            Err(error) => error,
        };
        let not_yet =
            matches!(error, SshError::HostKeyMismatch { .. }) && other_key == OtherKey::NotYet;
        if !(error.connection() || not_yet) {
            return Err(error.into());
        }
        context
            .voice
            .waiting_for(format!("SSH on {} ({error})", context.job.node_name));
        before = Some(away_at(&error, asked));
        tokio::time::sleep(pause_after(&error)).await;
    }
}

/// Like [`reach`], for a system expected to be up. A system without a login for a while counts as
/// down, and the job fails early.
pub(super) async fn reach_up(context: &JobContext, login: &Login) -> Result<Session, Failure> {
    let silent = context.agent.silent;
    match tokio::time::timeout(silent, reach(context, login, OtherKey::Refuse)).await {
        Ok(reached) => reached,
        Err(_) => {
            let awaited = context.voice.awaited();
            let last = awaited.map_or_else(String::new, |thing| format!("; waiting for {thing}"));
            let why = format!(
                "{} accepted no login for {} s{last}",
                context.job.node_name,
                silent.as_secs()
            );
            Err(failed(FailureCode::SshUnreachable, why))
        }
    }
}

/// Returns the pause before the next attempt after an error.
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

/// Returns the session kept by the previous job, if the session matches the login.
pub(super) async fn kept(context: &JobContext, login: &Login) -> Option<Session> {
    context
        .agent
        .sessions
        .take(context.job.node, context.job.epoch, login)
        .await
}

/// Keeps a session for the next job of the node.
pub(super) fn keep(context: &JobContext, login: &Login, session: Session) {
    context
        .agent
        .sessions
        .keep(context.job.node, context.job.epoch, login, session);
}

/// Returns the latest time without an answer of the machine, for an attempt started at `asked`.
/// Without a TCP connection the machine was probed until the end of the attempt.
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

/// Logs the possible delay before the system was detected, and the duration of the login.
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
    /// muster-node prints its failure as a JSON line on stderr. The failure is passed on unchanged.
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
