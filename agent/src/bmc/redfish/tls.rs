//! TLS to a BMC: one certificate is trusted, by its SHA-256, and no name or authority. BMCs sign their own, for any name or none.

use std::sync::{Arc, Mutex, PoisonError};

use muster_core::values::Digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// The certificate a client goes by: pinned beforehand, or the first one it was shown.
#[derive(Debug, Default)]
pub(super) struct Pin {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    pinned: Option<Digest>,
    /// The last certificate that was not the pinned one.
    stranger: Option<Digest>,
}

impl Pin {
    pub(super) fn new(pinned: Option<Digest>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { pinned, stranger: None }) })
    }

    /// The certificate that is trusted, once there is one.
    pub(super) fn pinned(&self) -> Option<Digest> {
        self.lock().pinned
    }

    /// The pinned and the shown certificate, when they differed since the last call.
    pub(super) fn take_mismatch(&self) -> Option<(Digest, Digest)> {
        let mut state = self.lock();
        state.pinned.zip(state.stranger.take())
    }

    /// Whether to go on with this certificate; without a pin the first one becomes it.
    fn admit(&self, seen: Digest) -> bool {
        let mut state = self.lock();
        let fits = *state.pinned.get_or_insert(seen) == seen;
        state.stranger = (!fits).then_some(seen);
        fits
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A TLS configuration that trusts what `pin` admits and nothing else.
pub(super) fn client_config(pin: Arc<Pin>) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Arc::new(Verifier { pin, provider: Arc::clone(&provider) });
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth()
}

#[derive(Debug)]
struct Verifier {
    pin: Arc<Pin>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.pin.admit(Digest::of(end_entity)) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::General("not the pinned certificate".into())),
        }
    }

    // The signatures are what proves that the peer holds the certificate's key; they are checked in full.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
