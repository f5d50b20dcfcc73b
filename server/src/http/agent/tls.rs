//! The TLS of the agents' listener: version 1.3 only. The installation's own authority certifies
//! the server and the agents. An agent without a certificate may connect to enrol. The handshake
//! identifies the certificate, and each call checks for revocation. During a rotation, agents show
//! certificates of both authorities, and the server shows a certificate of the former one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};
use tokio_rustls::TlsAcceptor;

use crate::keys::Keys;
use crate::keys::authority::{self, Authority, Certified};
use crate::keys::rings::Ring;

/// The certificate of a connection; `None` for a connection without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub Option<Certified>);

impl Peer {
    /// Reads the certificate shown in the handshake.
    pub fn of(connection: &ServerConnection) -> Self {
        let shown = connection
            .peer_certificates()
            .and_then(|chain| chain.first());
        // The verifier has already parsed the certificate.
        Self(shown.and_then(|certificate| authority::read(certificate).ok()))
    }
}

/// The settings of new connections: always for the authorities that the server holds.
pub struct AgentTls {
    keys: Arc<Keys>,
    held: Mutex<Held>,
}

/// The authorities and their settings.
struct Held {
    ring: Arc<Ring<Authority>>,
    acceptor: TlsAcceptor,
}

impl Held {
    fn of(ring: Arc<Ring<Authority>>) -> anyhow::Result<Self> {
        let acceptor = TlsAcceptor::from(Arc::new(config(&ring)?));
        Ok(Self { ring, acceptor })
    }
}

impl AgentTls {
    /// Certifies this server for agents.
    ///
    /// # Errors
    /// When the server cannot be certified.
    pub fn open(keys: Arc<Keys>) -> anyhow::Result<Arc<Self>> {
        let held = Mutex::new(Held::of(keys.authorities.now())?);
        Ok(Arc::new(Self { keys, held }))
    }

    /// Returns the acceptor of the next handshake.
    pub fn acceptor(&self) -> TlsAcceptor {
        let ring = self.keys.authorities.now();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&held.ring, &ring) {
            match Held::of(ring) {
                Ok(changed) => *held = changed,
                Err(error) => tracing::error!(
                    error = format!("{error:#}"),
                    "the changed authority of agents is not in use; the former one stays"
                ),
            }
        }
        held.acceptor.clone()
    }
}

fn config(ring: &Ring<Authority>) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let (chain, key) = ring.current.certify_server()?;
    let mut roots = RootCertStore::empty();
    roots.add(ring.current.certificate().clone())?;
    if let Some(next) = &ring.next {
        roots.add(next.certificate().clone())?;
    }
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

/// Verifies a certificate at the begin of its validity instead of now. An expired certificate
/// therefore passes the handshake, and the call is answered with an error and the next step. A
/// refused handshake would give no explanation.
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
