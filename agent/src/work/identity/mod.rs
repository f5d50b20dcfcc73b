//! What an agent shows the server: a key that is made here and never leaves this machine, and the certificate for it. The first one is had for an enrolment
//! token, each later one for the one before, at half of its life.

pub mod keep; // On disk
mod tls; // One trusted authority

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

/// A renewal that failed is tried again after at most this: there is half of a certificate's life for it.
const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);
/// The time is looked at again after this: the server's may have been set.
const LOOK: Duration = Duration::from_secs(60);

/// How an agent comes in.
#[derive(Clone, Debug)]
pub enum Entry {
    /// By its certificate; by the enrolment token where it has none yet, or where the token is another one than it was enrolled with.
    Certificate { token: Option<Secret> },
    /// By a token shown over plain HTTP: a server of the same test, on the loopback interface and nowhere else.
    Loopback { token: Secret },
}

/// The agent's key and certificate, in memory and on disk.
#[derive(Debug)]
pub struct Identity {
    keep: Keep,
    state: Mutex<Kept>,
}

impl Identity {
    /// Reads what an earlier process kept. A token that is not the one it was enrolled with begins anew, with another key; until that enrolment is
    /// answered, taking the token away again goes back to the certificate of before.
    ///
    /// # Errors
    /// When the file cannot be read or written, or neither a certificate nor a token is there.
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
                    key,
                    issued: None,
                    before,
                };
                // Before the token is used: an answer that is lost can be asked for again, with the same key.
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

    /// The newest certificate.
    pub fn issued(&self) -> Option<Issued> {
        self.now().issued
    }

    /// TLS as this agent speaks it now.
    ///
    /// # Errors
    /// When what is kept is no key or certificate.
    pub fn tls(&self) -> Result<rustls::ClientConfig, CallError> {
        let kept = self.now();
        let certificate = kept
            .issued
            .as_ref()
            .map(|issued| issued.certificate.as_str());
        tls::config(kept.authority, kept.key.reveal(), certificate).map_err(|error| broken(&error))
    }

    /// Asks for the first certificate, where there is none. The same again is harmless.
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
        tracing::info!(site = issued.site, until = %issued.not_after, "enrolled");
        self.set(Kept {
            issued: Some(issued),
            before: None,
            ..kept
        })
        .map_err(|error| broken(&error))?;
        client.show(self.tls()?)
    }

    /// Asks for another certificate, for another key, and shows it from now on.
    ///
    /// # Errors
    /// [`CallError`]; then everything is as before.
    pub async fn renew(&self, client: &Client) -> Result<(), CallError> {
        let key = new_key().map_err(|error| broken(&error))?;
        let issued: Issued = client
            .renew(&Renew {
                request: request(&key)?,
            })
            .await?;
        tracing::info!(until = %issued.not_after, "the certificate was renewed");
        self.set(Kept {
            key: Secret::new(key.serialize_pem()),
            issued: Some(issued),
            ..self.now()
        })
        .map_err(|error| broken(&error))?;
        client.show(self.tls()?)
    }

    /// Renews at half of a certificate's life, for as long as it runs. The time is the server's, which `clock` follows.
    pub async fn keep_renewed(self: Arc<Self>, client: Client, clock: Clock) {
        let mut backoff = Backoff::new(LONGEST_PAUSE);
        loop {
            let Some(issued) = self.issued() else { return };
            let left = Duration::try_from(issued.renew_at().duration_since(clock.now()))
                .unwrap_or_default();
            if !left.is_zero() {
                tokio::time::sleep(left.min(LOOK)).await;
                continue;
            }
            match self.renew(&client).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    let (until, own, served) = (issued.not_after, clock.own(), clock.now());
                    tracing::warn!(%error, %until, server_time = %served, own_time = %own, "the certificate was not renewed");
                    backoff.pause().await;
                }
            }
        }
    }
}

fn new_key() -> io::Result<KeyPair> {
    KeyPair::generate_for(&PKCS_ED25519).map_err(io::Error::other)
}

/// Signed by the key; it asks for nothing, for the server goes by who asks.
fn request(key: &KeyPair) -> Result<String, CallError> {
    let request = CertificateParams::default()
        .serialize_request(key)
        .and_then(|request| request.pem());
    request.map_err(|error| broken(&error))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// What lies here is not what it should be: no call will mend it.
fn broken(error: &dyn std::fmt::Display) -> CallError {
    CallError::Refused {
        status: 0,
        code: "identity".into(),
        detail: error.to_string(),
    }
}
