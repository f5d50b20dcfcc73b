//! The agents' listener on a socket: TLS 1.3, the server certified by the installation's own authority, the caller by the same one or by nobody yet.
//! A handshake finds out whose certificate it is; whether it still counts, each call asks.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::auth::authority::{self, Authority, Certified};

/// A handshake that takes longer is given up.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes under way at once; the others wait in the kernel's queue.
const HANDSHAKES: usize = 256;
/// After an error of the socket itself: no more files, no more memory.
const PAUSE: Duration = Duration::from_millis(200);

/// Whose certificate a connection showed; `None` where it showed none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub Option<Certified>);

/// Connections whose handshake is done.
pub struct TlsListener {
    local: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    /// Ends with the listener.
    _accepting: JoinSet<()>,
}

impl TlsListener {
    /// Takes connections from a socket.
    ///
    /// # Errors
    /// When the server cannot be certified.
    pub fn start(socket: TcpListener, authority: &Authority) -> anyhow::Result<Self> {
        let local = socket.local_addr()?;
        let acceptor = TlsAcceptor::from(Arc::new(config(authority)?));
        let (done, ready) = mpsc::channel(HANDSHAKES);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(socket, acceptor, done));
        Ok(Self {
            local,
            ready,
            _accepting: accepting,
        })
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // Only a listener that is being dropped has no task any more.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.local)
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        let (_, connection) = stream.io().get_ref();
        let shown = connection
            .peer_certificates()
            .and_then(|chain| chain.first());
        // The verifier has read it before.
        Self(shown.and_then(|certificate| authority::read(certificate).ok()))
    }
}

async fn accept(
    socket: TcpListener,
    acceptor: TlsAcceptor,
    done: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    let mut handshakes = JoinSet::new();
    loop {
        while handshakes.len() >= HANDSHAKES {
            handshakes.join_next().await;
        }
        let (stream, from) = tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok(connection) => connection,
                Err(error) => {
                    tracing::warn!(%error, "a connection to the agents' listener could not be taken");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
            Some(_) = handshakes.join_next() => continue,
        };
        let (acceptor, done) = (acceptor.clone(), done.clone());
        handshakes.spawn(async move {
            stream.set_nodelay(true).ok();
            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => drop(done.send((stream, from)).await),
                Ok(Err(error)) => tracing::info!(%from, %error, "a caller of the agents' listener was not let in"),
                Err(_) => tracing::info!(%from, "a caller of the agents' listener did not finish its handshake"),
            }
        });
    }
}

fn config(authority: &Authority) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let (chain, key) = authority.certify_server()?;
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone())?;
    let inner = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let inner = inner
        .allow_unauthenticated()
        .build()
        .context("verify agents")?;
    let mut config = ServerConfig::builder_with_provider(provider as Arc<CryptoProvider>)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(AtItsOwnTime(inner)))
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Verifies all but the time: a certificate that ended gets an answer which says so and what to do, where a refused handshake would say nothing. What is
/// asked is whether it was good when it began.
#[derive(Debug)]
struct AtItsOwnTime(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AtItsOwnTime {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let unreadable = Error::InvalidCertificate(CertificateError::BadEncoding);
        let certified = authority::read(end_entity).map_err(|_| unreadable.clone())?;
        let began = u64::try_from(certified.not_before.as_second()).map_err(|_| unreadable)?;
        let began = UnixTime::since_unix_epoch(Duration::from_secs(began));
        self.0.verify_client_cert(end_entity, intermediates, began)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
