//! Writes the list of revoked keys in an order to the node, before the work of the order.

use muster_core::values::Digest;
use muster_core::wire::login::Login;

use crate::ssh::command::Command;
use crate::ssh::{Session, SshError, krl};
use crate::work::context::JobContext;

/// Writes the list where the order has a list for the system of the login. A failure is logged, and
/// the work goes on: the next order has the list again.
pub(super) async fn write_list(context: &JobContext, login: &Login, session: &Session) {
    let Some(revoked) = &context.job.revoked_keys else {
        return;
    };
    let is_of = |host_key: Option<&String>| host_key == Some(&login.host_key);
    let is_installed = is_of(revoked.installed.as_ref());
    if !(is_installed || is_of(revoked.live.as_ref())) || !context.revocation.begin() {
        return;
    }
    let list = krl::encode(&revoked.serials, context.agent.clock.now());
    let digest = Digest::of(&list);
    let name = &context.job.node_name;
    match session
        .exec(Command::RevokeKeys { digest }, list.into())
        .await
    {
        Ok(_) => {
            if is_installed {
                context.revocation.note_held();
            }
            let count = revoked.serials.len();
            context.voice.log(format!(
                "{name} refuses {count} SSH certificates of removed agents"
            ));
        }
        Err(error) => context.voice.log(format!(
            "{name} still accepts SSH certificates of removed agents: {}",
            describe_error(&error)
        )),
    }
}

/// Returns the error without the text of the command, which is longer than a line of a log.
fn describe_error(error: &SshError) -> String {
    match error {
        SshError::Exit { status, stderr, .. } => format!("status {status}: {stderr}"),
        SshError::Timeout { seconds, .. } => format!("no end after {seconds} s"),
        SshError::TooMuch { limit, .. } => format!("more than {limit} bytes of output"),
        SshError::BadLogin(_)
        | SshError::Unreachable { .. }
        | SshError::HostKeyMismatch { .. }
        | SshError::AuthRefused(_)
        | SshError::Lost(_) => error.to_string(),
    }
}
