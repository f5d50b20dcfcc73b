//! Adopts a machine installed by others, without disturbing the machine. Idempotent: the job writes
//! the `authorized_keys` line trusting our CA and the marker, and both have the same content each
//! time.

use bytes::Bytes;
use muster_core::wire::adopt::Adopt;
use muster_core::wire::login::Login;
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::result::JobResult;

use super::reach::TRY;
use crate::ssh::command::Command;
use crate::ssh::first_contact::{FirstContact, Met, meet};
use crate::ssh::{Session, SshError};
use crate::work::context::{JobContext, fatal};

pub(super) async fn run(context: &JobContext, adopt: &Adopt) -> Result<JobResult, Failure> {
    let contact = FirstContact {
        address: adopt.address,
        port: adopt.port,
        fingerprint: adopt.host_key.as_deref(),
        user: &adopt.user,
        secret: &adopt.secret,
    };
    let name = &context.job.node_name;
    context.voice.waiting_for(format!("SSH on {name}"));
    let (session, host_key) = match meet(contact, TRY).await? {
        Met::Session { session, host_key } => (session, host_key),
        Met::Unconfirmed { shown } => {
            return Err(fatal(
                FailureCode::HostKeyUnconfirmed,
                format!(
                    "{name} shows the host key {shown}; compare it on the machine itself (ssh-keygen -lf \
                     /etc/ssh/ssh_host_ed25519_key.pub) and adopt it with that"
                ),
            ));
        }
    };
    context.voice.moving();
    session
        .exec(Command::TrustCa, Bytes::from(adopt.trust.clone() + "\n"))
        .await?;
    let marker = serde_json::to_string(&adopt.marker).expect("a marker is plain data") + "\n";
    session.exec(Command::WriteMarker, marker.into()).await?;
    // The following login uses the certificate, as in every later job. The certificate must work
    // before the credential is deleted.
    let login = Login {
        address: adopt.address,
        port: adopt.port,
        host_key: host_key.clone(),
        user_key: adopt.user_key.clone(),
    };
    let ours = Session::connect(&login, TRY).await.map_err(not_trusted)?;
    Ok(JobResult::Adopted {
        host_key,
        boot_id: ours.boot_id().await?,
    })
}

fn not_trusted(error: SshError) -> Failure {
    match error {
        SshError::AuthRefused(address) => fatal(
            FailureCode::CaNotTrusted,
            format!(
                "{address} took the line that trusts Muster's CA and refuses its certificate: does its sshd allow root by key \
                 (PermitRootLogin prohibit-password) and read /root/.ssh/authorized_keys?"
            ),
        ),
        other => other.into(),
    }
}
