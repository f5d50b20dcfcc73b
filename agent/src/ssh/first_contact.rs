//! The first session on a machine installed by others. The login uses the credential entered by an
//! operator, and only after an operator confirmed the host key of the machine.
//!
//! The agent sends no data of its own, above all not the credential, before the host key equals the
//! confirmed key.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use muster_core::values::Secret;
use russh::client::{self, AuthResult, Handle};
use russh::keys::ssh_key::{HashAlg, PrivateKey};
use russh::keys::{PrivateKeyWithHashAlg, PublicKey};
use tokio::time::Instant;

use super::{Accepted, KEEPALIVE, Pin, Session, Shown, SshError};

/// Address and credential for the first login on a machine.
#[derive(Clone, Copy, Debug)]
pub struct FirstContact<'text> {
    pub address: Ipv4Addr,
    pub port: u16,
    /// The fingerprint `SHA256:…`, as an operator read it on the machine itself. With `None` the
    /// call only returns the shown host key.
    pub fingerprint: Option<&'text str>,
    /// Login name entered by the operator.
    pub user: &'text str,
    /// An OpenSSH private key or a password.
    pub secret: &'text Secret,
}

/// The result of a first contact.
pub enum Met {
    /// Logged in. `host_key` is the host key line to be recorded.
    Session { session: Session, host_key: String },
    /// The host key is not confirmed yet. `shown` is the host key of the machine.
    Unconfirmed { shown: String },
}

/// Connects to a machine for the first time.
///
/// # Errors
/// [`SshError`]: `HostKeyMismatch` before the credential was sent, `AuthRefused` when the machine
/// rejects the credential.
pub async fn meet(contact: FirstContact<'_>, within: Duration) -> Result<Met, SshError> {
    let what = format!("connecting to {}:{}", contact.address, contact.port);
    tokio::time::timeout(within, connect(contact))
        .await
        .map_err(|_| SshError::Timeout {
            what,
            seconds: within.as_secs(),
        })?
}

async fn connect(contact: FirstContact<'_>) -> Result<Met, SshError> {
    let address = SocketAddr::from((contact.address, contact.port));
    let shown: Shown = Arc::new(OnceLock::new());
    let accepted = Accepted::Fingerprint(contact.fingerprint.map(str::to_owned));
    let pin = Pin {
        accepted,
        shown: Arc::clone(&shown),
    };
    let config = client::Config {
        keepalive_interval: Some(KEEPALIVE),
        nodelay: true,
        ..Default::default()
    };
    let asked = Instant::now();
    let connected = client::connect(Arc::new(config), address, pin).await;
    let key = shown.get().cloned();
    let mut handle = match (connected, key.as_ref(), contact.fingerprint) {
        (Ok(handle), ..) => handle,
        (Err(russh::Error::UnknownKey), Some(key), None) => {
            return Ok(Met::Unconfirmed {
                shown: described(key),
            });
        }
        (Err(russh::Error::UnknownKey), Some(key), Some(recorded)) => {
            return Err(SshError::HostKeyMismatch {
                address,
                shown: described(key),
                recorded: recorded.to_owned(),
            });
        }
        (Err(error), ..) => {
            return Err(SshError::Unreachable {
                address,
                why: error.to_string(),
            });
        }
    };
    let key = key.ok_or_else(|| SshError::Lost("the machine showed no host key".into()))?;
    let host_key = key
        .to_openssh()
        .map_err(|error| SshError::Lost(format!("its host key: {error}")))?;
    match log_in(&mut handle, contact).await? {
        answer if answer.success() => Ok(Met::Session {
            session: Session::over(address, handle, asked),
            host_key,
        }),
        _ => Err(SshError::AuthRefused(address)),
    }
}

async fn log_in(
    handle: &mut Handle<Pin>,
    contact: FirstContact<'_>,
) -> Result<AuthResult, SshError> {
    let lost = |error: russh::Error| SshError::Lost(error.to_string());
    let secret = contact.secret.reveal();
    if !secret.trim_start().starts_with("-----BEGIN") {
        return handle
            .authenticate_password(contact.user, secret)
            .await
            .map_err(lost);
    }
    // The error of the parser could quote parts of the private key and is dropped.
    let key = PrivateKey::from_openssh(secret).map_err(|_| {
        SshError::BadLogin(
            "the credential is not an OpenSSH private key without a passphrase".into(),
        )
    })?;
    let hash = handle
        .best_supported_rsa_hash()
        .await
        .map_err(lost)?
        .flatten();
    let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
    handle
        .authenticate_publickey(contact.user, key)
        .await
        .map_err(lost)
}

/// Returns the fingerprint of a key in the format of `ssh-keygen -l`.
fn described(key: &PublicKey) -> String {
    format!("{} ({})", key.fingerprint(HashAlg::Sha256), key.algorithm())
}
