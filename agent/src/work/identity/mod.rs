//! The identity of an agent on the server: a private key, created locally and never sent, and its
//! certificate. The first certificate is issued for an enrolment token. Each later certificate is
//! issued for the previous certificate, at half of the lifetime or in a rotation of the authority.

pub mod keep; // The identity on disk
mod tls; // Trust in the authorities of the server

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_core::clock::Clock;
use muster_core::values::{Digest, Secret};
use muster_core::wire::enrol::{Enrol, Issued, Renew, authority_of};
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};

use self::keep::{Keep, Kept};
use super::backoff::Backoff;
use super::client::Client;
use super::client::error::CallError;

/// Maximum pause before retrying a failed renewal. Half of the lifetime of a certificate is left
/// for retries.
const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);
/// Interval for checking the time, because the time of the server can be changed.
const LOOK: Duration = Duration::from_secs(60);

/// The way an agent authenticates.
#[derive(Clone, Debug)]
pub enum Entry {
    /// By certificate. The enrolment token is used without a certificate, or when the token differs
    /// from the token of the last enrolment.
    Certificate { token: Option<Secret> },
    /// By token over plain HTTP, for a server in the same test. Only the loopback interface is
    /// allowed.
    Loopback { token: Secret },
}

/// The key and certificate of the agent, in memory and on disk.
#[derive(Debug)]
pub struct Identity {
    keep: Keep,
    state: Mutex<Kept>,
}

impl Identity {
    /// Reads the identity of an earlier process. A token different from the last enrolment starts a
    /// new enrolment with a new key. Until the server answers, removing the token returns to the
    /// previous certificate.
    ///
    /// # Errors
    /// When the file cannot be read or written, or when both certificate and token are missing.
    pub fn open(data_dir: &Path, token: Option<&Secret>) -> io::Result<Self> {
        let keep = Keep::at(data_dir)?;
        let kept = keep.read()?;
        let Some(token) = token else {
            let kept = kept.and_then(Kept::enrolled).ok_or_else(|| {
                invalid("there is no certificate, and no token file to enrol with: `muster agent enrol SITE NAME` prints a token")
            })?;
            return Ok(Self {
                keep,
                state: Mutex::new(kept),
            });
        };
        let digest = Digest::of(token.reveal().as_bytes());
        let kept = match kept.map_or(Err(None), |kept| kept.of(digest)) {
            Ok(kept) => kept,
            Err(before) => {
                let authority = authority_of(token.reveal()).ok_or_else(|| {
                    invalid("the token file holds no enrolment token, or a part of one")
                })?;
                let key = Secret::new(new_key()?.serialize_pem());
                let kept = Kept {
                    token: digest,
                    authority,
                    next_authority: None,
                    key,
                    next_key: None,
                    issued: None,
                    before,
                };
                // Saved before using the token, so that a lost answer can be requested again with
                // the same key.
                keep.write(&kept)?;
                kept
            }
        };
        Ok(Self {
            keep,
            state: Mutex::new(kept),
        })
    }

    fn now(&self) -> Kept {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, kept: Kept) -> io::Result<()> {
        self.keep.write(&kept)?;
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        Ok(())
    }

    /// Returns the newest certificate.
    pub fn issued(&self) -> Option<Issued> {
        self.now().issued
    }

    /// Returns the TLS configuration for the current certificate.
    ///
    /// # Errors
    /// When the stored key or certificate is invalid.
    pub fn tls(&self) -> Result<rustls::ClientConfig, CallError> {
        let kept = self.now();
        let certificate = kept
            .issued
            .as_ref()
            .map(|issued| issued.certificate.as_str());
        tls::config(kept.authorities(), kept.key.reveal(), certificate)
            .map_err(|error| broken(&error))
    }

    /// Stores the authorities that the server has told, and trusts exactly these from now on. The
    /// client then shows the stored list to the server. Returns whether the list has a new
    /// authority.
    ///
    /// # Errors
    /// When the list cannot be stored; the former list then stays in use.
    pub fn follow_authorities(&self, client: &Client) -> Result<bool, CallError> {
        let kept = self.now();
        let (stored, told) = (kept.authorities(), client.authorities().told());
        let is_new = told.iter().any(|authority| !stored.contains(authority));
        if !told.is_empty() && told != stored {
            // Before the list is shown: the server may end the former authority afterwards.
            self.set(kept.trusting(&told))
                .map_err(|error| broken(&error))?;
            client.show(self.tls()?)?;
            tracing::info!(authorities = ?told, "authorities of the server stored");
        }
        client.authorities().show(&self.now().authorities());
        Ok(is_new)
    }

    /// Requests the first certificate, if none is stored. Repeating the call is harmless.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn enrol(&self, client: &Client, token: &Secret) -> Result<(), CallError> {
        let kept = self.now();
        if kept.issued.is_some() {
            return Ok(());
        }
        let key = KeyPair::from_pem(kept.key.reveal()).map_err(|error| broken(&error))?;
        let issued: Issued = client
            .enrol(&Enrol {
                token: token.clone(),
                request: request(&key)?,
            })
            .await?;
        tracing::info!(site = issued.site, until = %issued.not_after, "agent enrolled; certificate stored");
        // Before the certificate is saved: after a crash the enrolment is repeated.
        if kept.is_elsewhere() {
            client.forget_marks().map_err(|error| broken(&error))?;
        }
        self.set(Kept {
            issued: Some(issued),
            before: None,
            ..kept
        })
        .map_err(|error| broken(&error))?;
        client.show(self.tls()?)
    }

    /// Requests a certificate for a new key and uses both from now on. The new key is saved before
    /// the request. After a lost answer, the next call requests the same key again. The server
    /// would take a second new key for the key of a copied identity.
    ///
    /// # Errors
    /// [`CallError`]; the current identity then stays in use.
    pub async fn renew(&self, client: &Client) -> Result<(), CallError> {
        let key = self.next_key().map_err(|error| broken(&error))?;
        let issued: Issued = client
            .renew(&Renew {
                request: request(&key)?,
            })
            .await?;
        tracing::info!(until = %issued.not_after, "certificate renewed");
        self.set(Kept {
            key: Secret::new(key.serialize_pem()),
            next_key: None,
            issued: Some(issued),
            ..self.now()
        })
        .map_err(|error| broken(&error))?;
        client.show(self.tls()?)
    }

    /// Returns the key of the next certificate, saved on disk.
    fn next_key(&self) -> io::Result<KeyPair> {
        let kept = self.now();
        if let Some(saved) = &kept.next_key {
            return KeyPair::from_pem(saved.reveal()).map_err(io::Error::other);
        }
        let key = new_key()?;
        self.set(Kept {
            next_key: Some(Secret::new(key.serialize_pem())),
            ..kept
        })?;
        Ok(key)
    }

    /// Whether the certificate is of the former authority, while a successor is trusted.
    fn is_of_former(&self) -> bool {
        let kept = self.now();
        let signer = kept
            .issued
            .and_then(|issued| tls::digest_of(&issued.authority));
        kept.next_authority
            .zip(signer)
            .is_some_and(|(next, signer)| next != signer)
    }

    /// Renews the certificate at half of the lifetime, as long as the future runs. A new authority
    /// is followed at once, with a renewal. `clock` follows the time of the server.
    pub async fn keep_renewed(self: Arc<Self>, client: Client, clock: Clock) {
        let mut backoff = Backoff::new(LONGEST_PAUSE);
        let mut told = client.authorities().subscribe();
        loop {
            told.mark_unchanged();
            if let Err(error) = self.follow_authorities(&client) {
                tracing::warn!(%error, "authorities of the server not stored; retrying; check the disk");
            }
            let Some(issued) = self.issued() else { return };
            let left = Duration::try_from(issued.renew_at().duration_since(clock.now()))
                .unwrap_or_default();
            if !left.is_zero() && !self.is_of_former() {
                // The client holds the sender, so a wait ends by a change alone.
                tokio::time::timeout(left.min(LOOK), told.changed())
                    .await
                    .ok();
                continue;
            }
            match self.renew(&client).await {
                // The server signs by the successor once all servers accept the successor.
                Ok(()) if self.is_of_former() => backoff.pause().await,
                Ok(()) => backoff.reset(),
                Err(error) => {
                    let (until, own, served) = (issued.not_after, clock.own(), clock.now());
                    tracing::warn!(%error, %until, server_time = %served, own_time = %own, "certificate not renewed; retrying; if server_time and own_time differ, set the clocks");
                    backoff.pause().await;
                }
            }
        }
    }
}

fn new_key() -> io::Result<KeyPair> {
    KeyPair::generate_for(&PKCS_ED25519).map_err(io::Error::other)
}

/// Returns a request signed by the key. The request names no subject, because the server identifies
/// the caller.
fn request(key: &KeyPair) -> Result<String, CallError> {
    let request = CertificateParams::default()
        .serialize_request(key)
        .and_then(|request| request.pem());
    request.map_err(|error| broken(&error))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The stored identity is invalid, and no call can repair the file.
fn broken(error: &dyn std::fmt::Display) -> CallError {
    CallError::Refused {
        status: 0,
        code: "identity".into(),
        detail: error.to_string(),
    }
}
