//! A session on a node that is up, or coming up.

use std::time::Duration;

use muster_core::wire::agent::Login;
use muster_core::wire::node::Failure;
use muster_core::wire::noticed::Noticed;
use tokio::time::Instant;

use crate::ssh::command::Command;
use crate::ssh::{Session, SshError};
use crate::work::backoff::Backoff;
use crate::work::context::{JobContext, failed, fatal};

/// One try; a machine that is up answers within a second, a loaded one within a few.
pub(super) const TRY: Duration = Duration::from_secs(15);
/// Longest pause between tries: a booted machine is noticed this late at most.
const PAUSE: Duration = Duration::from_secs(1);

/// What another host key than the recorded one means at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherKey {
    /// The machine is not the one we mean.
    Refuse,
    /// The system before this one is still there: wait for its end.
    NotYet,
}

/// Connects, trying until the job's deadline, and says so.
pub(super) async fn reach(context: &JobContext, login: &Login, other_key: OtherKey) -> Result<Session, Failure> {
    let mut backoff = Backoff::new(PAUSE);
    let mut before = None;
    loop {
        let asked = Instant::now();
        let error = match Session::connect(login, TRY).await {
            Ok(session) => {
                noticed(context, before);
                context.voice.moving();
                return Ok(session);
            }
            Err(error) => error,
        };
        let not_yet = matches!(error, SshError::HostKeyMismatch { .. }) && other_key == OtherKey::NotYet;
        if !(error.connection() || not_yet) {
            return Err(error.into());
        }
        context.voice.waiting_for(format!("waiting for SSH on {} ({error})", context.job.node_name));
        before = Some(asked);
        backoff.pause().await;
    }
}

/// Logs how long a system that now answers may have been up before: since the last try that failed.
pub(super) fn noticed(context: &JobContext, before: Option<Instant>) {
    if let Some(before) = before {
        context.voice.log(Noticed(before.elapsed()).to_string());
    }
}

/// The kernel's id of the boot that a session is in.
pub(super) async fn boot_id(session: &Session) -> Result<String, SshError> {
    let output = session.exec(Command::BootId, bytes::Bytes::new()).await?;
    let text = String::from_utf8_lossy(&output).trim().to_owned();
    match uuid::Uuid::try_parse(&text) {
        Ok(_) => Ok(text),
        Err(_) => Err(SshError::Exit {
            command: Command::BootId.to_string(),
            status: 0,
            stderr: format!("{text:?} is not a boot id"),
        }),
    }
}

impl From<SshError> for Failure {
    /// muster-node tells why it failed as one JSON line on stderr; that is passed on as it is.
    fn from(error: SshError) -> Self {
        let message = error.to_string();
        match &error {
            SshError::Exit { stderr, .. } => {
                serde_json::from_str(stderr).unwrap_or_else(|_| failed("ssh_exit", message))
            }
            SshError::BadLogin(_) => fatal("ssh_bad_login", message),
            SshError::Unreachable { .. } => failed("ssh_unreachable", message),
            SshError::HostKeyMismatch { .. } => fatal("ssh_host_key_mismatch", message),
            SshError::AuthRefused(_) => fatal("ssh_auth_refused", message),
            SshError::Timeout { .. } => failed("ssh_timeout", message),
            SshError::Lost(_) => failed("ssh_lost", message),
            SshError::TooMuch { .. } => fatal("ssh_too_much_output", message),
        }
    }
}
