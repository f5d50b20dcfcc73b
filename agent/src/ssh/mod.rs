//! SSH: the only way to command a node, in the live image and in the installed OS alike.
//!
//! The node proves itself by the one host key recorded for it; we prove ourselves by a certificate made for one job. What is run is one of
//! [`command::Command`]'s fixed forms: no text from outside ever reaches a shell. Nothing a node prints is kept beyond a stated size.

pub mod command; // What may be run on a node, and its bounds
mod exec; // One command: input, output, exit
pub mod first_contact; // A machine that somebody else installed
pub mod kept; // What one job leaves for the next
pub mod lines; // A command that prints lines for as long as it likes
#[cfg(test)]
pub(crate) mod sshd; // A real sshd on loopback
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt as _};
use muster_core::values::Digest;
use muster_core::wire::login::Login;
use russh::client::{self, Handle};
use russh::keys::PublicKeyOrCertificate;
use russh::keys::ssh_key::{Certificate, PrivateKey, PublicKey};
use tokio::net::TcpStream;
use tokio::time::Instant;

use command::Command;

/// With three unanswered keepalives allowed, a node that fell silent is noticed after 40 s.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVES_UNANSWERED: usize = 3;
/// A machine that is up takes a TCP connection at once, however loaded it is.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// One that is still booting is asked anew this often meanwhile: the kernel repeats what was not answered after a second, then after two, then four.
pub(crate) const ASKED_EVERY: Duration = Duration::from_millis(200);

/// What can go wrong between us and a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    #[error("the login cannot be used: {0}")]
    BadLogin(String),
    #[error("{address} does not answer: {why}")]
    Unreachable { address: SocketAddr, why: String },
    /// Another machine, another system on the same machine, or somebody in between.
    #[error("{address} shows {shown}, recorded is {recorded}")]
    HostKeyMismatch {
        address: SocketAddr,
        shown: String,
        recorded: String,
    },
    #[error("{0} refuses our certificate for root")]
    AuthRefused(SocketAddr),
    #[error("{what} took longer than {seconds} s")]
    Timeout { what: String, seconds: u64 },
    /// The connection broke; what was running there may go on.
    #[error("connection lost: {0}")]
    Lost(String),
    #[error("{command} ended with {status}: {stderr}")]
    Exit {
        command: String,
        status: u32,
        stderr: String,
    },
    #[error("{command} printed more than {limit} bytes")]
    TooMuch { command: String, limit: usize },
}

impl SshError {
    /// Whether the same again may work once the node is back: the connection failed, not the command.
    pub fn connection(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Lost(_) => true,
            Self::BadLogin(_)
            | Self::HostKeyMismatch { .. }
            | Self::AuthRefused(_)
            | Self::Exit { .. }
            | Self::TooMuch { .. } => false,
        }
    }
}

/// A connection to one node, logged in as root. Dropping it closes it.
pub struct Session {
    handle: Handle<Pin>,
    /// When the machine took the connection.
    opened: Instant,
    /// The boot it is in, once it was asked: a connection does not outlive its boot.
    boot_id: OnceLock<String>,
    /// muster-node as it was found or put in place over it.
    node: OnceLock<Digest>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("closed", &self.handle.is_closed())
            .finish()
    }
}

impl Session {
    /// Connects, checks the host key and logs in, all within the given time.
    ///
    /// # Errors
    /// [`SshError`]; `HostKeyMismatch` before anything of ours was sent.
    pub async fn connect(login: &Login, within: Duration) -> Result<Self, SshError> {
        Self::connect_watched(login, within, KEEPALIVE).await
    }

    fn over(handle: Handle<Pin>, opened: Instant) -> Self {
        Self {
            handle,
            opened,
            boot_id: OnceLock::new(),
            node: OnceLock::new(),
        }
    }

    /// When the machine took the connection; what came after it until the session was there is the log-in.
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// Whether the other end still answers; no process is started there for it.
    pub async fn answers(&self, within: Duration) -> bool {
        let asked = tokio::time::timeout(within, self.handle.send_ping()).await;
        matches!(asked, Ok(Ok(()))) && !self.handle.is_closed()
    }

    /// Waits until the connection is gone: closed from there, or silent for longer than keepalives bear.
    pub async fn gone(self) {
        let _why = self.handle.await;
    }

    /// The kernel's id of the boot that the session is in; asked for once.
    ///
    /// # Errors
    /// As [`Session::exec`]; `Exit` when what it says is none.
    pub async fn boot_id(&self) -> Result<String, SshError> {
        if let Some(known) = self.boot_id.get() {
            return Ok(known.clone());
        }
        let output = self.exec(Command::BootId, Bytes::new()).await?;
        let text = String::from_utf8_lossy(&output).trim().to_owned();
        let none = || SshError::Exit {
            command: Command::BootId.to_string(),
            status: 0,
            stderr: format!("{text:?} is not a boot id"),
        };
        uuid::Uuid::try_parse(&text).map_err(|_| none())?;
        Ok(self.boot_id.get_or_init(|| text).clone())
    }

    /// Whether this muster-node was found or put in place over this session.
    pub fn has_node(&self, digest: Digest) -> bool {
        self.node.get() == Some(&digest)
    }

    /// Remembers that this muster-node is in place there.
    pub fn note_node(&self, digest: Digest) {
        let _noted_before = self.node.set(digest);
    }

    async fn connect_watched(
        login: &Login,
        within: Duration,
        keepalive: Duration,
    ) -> Result<Self, SshError> {
        let what = format!("connecting to {}:{}", login.address, login.port);
        tokio::time::timeout(within, connect(login, keepalive))
            .await
            .map_err(|_| SshError::Timeout {
                what,
                seconds: within.as_secs(),
            })?
    }
}

async fn connect(login: &Login, keepalive: Duration) -> Result<Session, SshError> {
    let address = SocketAddr::from((login.address, login.port));
    let recorded = PublicKey::from_openssh(&login.host_key)
        .map_err(|why| SshError::BadLogin(format!("recorded host key: {why}")))?;
    let (key, certificate) = user_key(login)?;
    let shown: Shown = Arc::new(OnceLock::new());
    let pin = Pin {
        accepted: Accepted::Key(Box::new(recorded.clone())),
        shown: Arc::clone(&shown),
    };
    let config = Arc::new(config(&recorded, keepalive));
    let refused = |error: russh::Error| refusal(address, &recorded, shown.get(), &error);
    let stream = open(address).await?;
    let opened = Instant::now();
    let mut handle = client::connect_stream(config, stream, pin)
        .await
        .map_err(refused)?;
    let answer = handle
        .authenticate_openssh_cert("root", Arc::new(key), certificate)
        .await;
    match answer {
        Ok(answer) if answer.success() => Ok(Session::over(handle, opened)),
        Ok(_) => Err(SshError::AuthRefused(address)),
        Err(error) => Err(SshError::Lost(error.to_string())),
    }
}

/// Asks until somebody answers, yes or no; all that was asked without an answer is given up at the end.
async fn open(address: SocketAddr) -> Result<TcpStream, SshError> {
    let unreachable = |why: String| SshError::Unreachable { address, why };
    let asking = async {
        let mut asked = FuturesUnordered::new();
        let mut again = tokio::time::interval(ASKED_EVERY);
        loop {
            tokio::select! {
                _time = again.tick() => asked.push(TcpStream::connect(address)),
                Some(answer) = asked.next() => return answer,
            }
        }
    };
    let stream = match tokio::time::timeout(TAKEN_WITHIN, asking).await {
        Ok(Ok(stream)) => stream,
        // Nobody answers on the machine's own segment: for whoever waits for it the same as silence, which it comes and goes with.
        Ok(Err(error)) if error.kind() == ErrorKind::HostUnreachable => {
            return Err(unreachable("no answer".into()));
        }
        Ok(Err(error)) => return Err(unreachable(error.to_string())),
        Err(_silent) => return Err(unreachable("no answer".into())),
    };
    stream
        .set_nodelay(true)
        .map_err(|error| unreachable(error.to_string()))?;
    Ok(stream)
}

fn user_key(login: &Login) -> Result<(PrivateKey, Certificate), SshError> {
    // The parser's error could quote what it read: a private key's is left out.
    let key = PrivateKey::from_openssh(login.user_key.private_key.reveal())
        .map_err(|_| SshError::BadLogin("the user key is not an OpenSSH private key".into()))?;
    let certificate = Certificate::from_openssh(&login.user_key.certificate)
        .map_err(|why| SshError::BadLogin(format!("user certificate: {why}")))?;
    Ok((key, certificate))
}

/// Asks for the recorded key's algorithm alone, so that a server with several keys shows the one we know.
fn config(recorded: &PublicKey, keepalive: Duration) -> client::Config {
    client::Config {
        keepalive_interval: Some(keepalive),
        keepalive_max: KEEPALIVES_UNANSWERED,
        preferred: russh::Preferred {
            key: Cow::Owned(vec![recorded.algorithm()]),
            ..Default::default()
        },
        ..Default::default()
    }
}

fn refusal(
    address: SocketAddr,
    recorded: &PublicKey,
    shown: Option<&PublicKey>,
    error: &russh::Error,
) -> SshError {
    let mismatch = |shown: String| SshError::HostKeyMismatch {
        address,
        shown,
        recorded: fingerprint(recorded),
    };
    match (error, shown) {
        (russh::Error::UnknownKey, Some(shown)) => mismatch(fingerprint(shown)),
        (russh::Error::UnknownKey, None) => mismatch("a certificate".into()),
        (
            russh::Error::NoCommonAlgo {
                kind: russh::AlgorithmKind::Key,
                ..
            },
            _,
        ) => mismatch(format!("no host key of kind {}", recorded.algorithm())),
        (other, _) => SshError::Unreachable {
            address,
            why: other.to_string(),
        },
    }
}

fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(Default::default()).to_string()
}

/// The host key that a machine showed.
type Shown = Arc<OnceLock<PublicKey>>;

/// Which host key is taken for the machine's.
enum Accepted {
    Key(Box<PublicKey>),
    /// As a person confirmed it; none before.
    Fingerprint(Option<String>),
}

/// Accepts exactly that host key, and remembers which one was shown.
struct Pin {
    accepted: Accepted,
    shown: Shown,
}

impl client::Handler for Pin {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        key: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = key else {
            return Ok(false);
        };
        self.shown.get_or_init(|| key.clone());
        Ok(match &self.accepted {
            Accepted::Key(recorded) => key.key_data() == recorded.key_data(),
            Accepted::Fingerprint(confirmed) => confirmed
                .as_ref()
                .is_some_and(|text| *text == fingerprint(key)),
        })
    }
}

/// Whether a certificate admits to a live image: there muster-node is baked in and never replaced.
///
/// # Errors
/// [`SshError::BadLogin`] when the certificate cannot be read.
pub fn is_live(login: &Login) -> Result<bool, SshError> {
    Ok(principals(login)?
        .iter()
        .any(|principal| principal.starts_with("muster-live:")))
}

/// As whom a login's certificate admits.
fn principals(login: &Login) -> Result<Vec<String>, SshError> {
    let certificate = Certificate::from_openssh(&login.user_key.certificate)
        .map_err(|why| SshError::BadLogin(format!("user certificate: {why}")))?;
    Ok(certificate.valid_principals().to_vec())
}
