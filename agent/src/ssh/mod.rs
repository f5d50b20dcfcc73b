//! SSH is the only channel for commands to a node, in the live image and in the installed OS.
//!
//! The node is authenticated by its recorded host key, and the agent by a certificate issued for a
//! single job. The commands are the fixed forms of [`command::Command`], so foreign text never
//! reaches a shell. Output of a node is kept only up to a fixed size.

pub mod command; // Commands allowed on a node, and their limits
mod exec; // Runs a single command
pub mod first_contact; // Login on a machine installed by others
pub mod kept; // Sessions kept for the next job
pub mod krl; // Key revocation lists
pub mod lines; // Commands with a stream of lines
mod long_lines; // Places for long lines
#[cfg(test)]
pub(crate) mod sshd; // A real sshd on loopback
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
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

/// With three unanswered keepalives allowed, a silent node is detected after 40 s.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVES_UNANSWERED: usize = 3;
/// Time limit for opening a TCP connection. A running machine accepts at once, even under load.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// Interval of further connection attempts to a booting machine. The kernel repeats an unanswered
/// SYN only after one, two and four seconds.
pub(crate) const ASKED_EVERY: Duration = Duration::from_millis(200);

/// Errors between the agent and a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    #[error("the login cannot be used: {0}")]
    BadLogin(String),
    #[error("{address} does not answer: {why}")]
    Unreachable { address: SocketAddr, why: String },
    /// Another machine, another system on the same machine, or a man in the middle.
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
    /// The connection broke. The command on the node may still run.
    #[error("connection lost: {0}")]
    Lost(String),
    #[error("{command} ended with {status}: {stderr}")]
    Exit {
        command: String,
        status: u32,
        stderr: String,
    },
    /// The limit has its unit: bytes or lines.
    #[error("{command} printed more than {limit}")]
    TooMuch { command: String, limit: String },
}

impl SshError {
    /// Returns whether a retry can succeed once the node is back, because the connection failed and
    /// not the command.
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

/// A connection to a node, logged in as root. Dropping the session closes the connection.
pub struct Session {
    address: IpAddr,
    handle: Handle<Pin>,
    /// Time at which the machine accepted the TCP connection.
    opened: Instant,
    /// Boot id of the node, after the first query. A connection cannot survive a reboot.
    boot_id: OnceLock<String>,
    /// Digest of muster-node, as found or installed over this session.
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
    /// Connects, checks the host key and logs in, within the given time.
    ///
    /// # Errors
    /// [`SshError`]; `HostKeyMismatch` is returned before the agent sent any credential.
    pub async fn connect(login: &Login, within: Duration) -> Result<Self, SshError> {
        Self::connect_watched(login, within, KEEPALIVE).await
    }

    fn over(address: SocketAddr, handle: Handle<Pin>, opened: Instant) -> Self {
        Self {
            address: address.ip(),
            handle,
            opened,
            boot_id: OnceLock::new(),
            node: OnceLock::new(),
        }
    }

    /// Returns the time at which the machine accepted the TCP connection. The login took the time
    /// from then until the session was ready.
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// Returns whether the peer answers a ping. The ping starts no process on the node.
    pub async fn answers(&self, within: Duration) -> bool {
        let asked = tokio::time::timeout(within, self.handle.send_ping()).await;
        matches!(asked, Ok(Ok(()))) && !self.handle.is_closed()
    }

    /// Waits until the connection is closed by the peer or times out by unanswered keepalives.
    pub async fn gone(self) {
        let _why = self.handle.await;
    }

    /// Returns the boot id of the kernel. The node is queried once per session.
    ///
    /// # Errors
    /// As [`Session::exec`]; `Exit` when the output is not a boot id.
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

    /// Returns whether this muster-node was found or installed over this session.
    pub fn has_node(&self, digest: Digest) -> bool {
        self.node.get() == Some(&digest)
    }

    /// Records the digest of the muster-node installed on the node.
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
        Ok(answer) if answer.success() => Ok(Session::over(address, handle, opened)),
        Ok(_) => Err(SshError::AuthRefused(address)),
        Err(error) => Err(SshError::Lost(error.to_string())),
    }
}

/// Repeats connection attempts until the machine accepts or refuses. Unanswered attempts are
/// dropped at the end.
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
        // ARP found no machine on the local segment. A booting machine alternates between this
        // error and silence, so both get the same message.
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
    // The error of the parser could quote parts of the private key and is dropped.
    let key = PrivateKey::from_openssh(login.user_key.private_key.reveal())
        .map_err(|_| SshError::BadLogin("the user key is not an OpenSSH private key".into()))?;
    let certificate = Certificate::from_openssh(&login.user_key.certificate)
        .map_err(|why| SshError::BadLogin(format!("user certificate: {why}")))?;
    Ok((key, certificate))
}

/// Returns the client configuration. Offers only the algorithm of the recorded key, so that a
/// server with several keys shows the recorded key.
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

/// The host key shown by the machine.
type Shown = Arc<OnceLock<PublicKey>>;

/// The host key accepted for the machine.
enum Accepted {
    Key(Box<PublicKey>),
    /// The fingerprint confirmed by an operator, `None` before the confirmation.
    Fingerprint(Option<String>),
}

/// Accepts exactly the configured host key and records the shown host key.
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

/// Returns whether the certificate of a login is for a live image. A live image contains
/// muster-node, and the agent never replaces it.
///
/// # Errors
/// [`SshError::BadLogin`] when the certificate cannot be read.
pub fn is_live(login: &Login) -> Result<bool, SshError> {
    Ok(principals(login)?
        .iter()
        .any(|principal| principal.starts_with("muster-live:")))
}

/// Returns the principals of the certificate of a login.
fn principals(login: &Login) -> Result<Vec<String>, SshError> {
    let certificate = Certificate::from_openssh(&login.user_key.certificate)
        .map_err(|why| SshError::BadLogin(format!("user certificate: {why}")))?;
    Ok(certificate.valid_principals().to_vec())
}
