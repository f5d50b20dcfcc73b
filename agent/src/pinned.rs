//! TLS to servers without a certificate of a public authority. A judge decides about trust. The
//! handshake always proves the peer holds the private key of the shown certificate.

use std::fmt::Debug;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme,
    SupportedProtocolVersion,
};

/// Decides which certificates are trusted.
pub(crate) trait Judge: Debug + Send + Sync + 'static {
    /// Checks the certificate of a server and the intermediate certificates sent with it.
    ///
    /// # Errors
    /// The reason why the server is not trusted.
    fn judge(&self, shown: &Shown<'_>) -> Result<(), Error>;
}

/// The certificates shown by a server in the handshake.
pub(crate) struct Shown<'a> {
    pub(crate) own: &'a CertificateDer<'a>,
    pub(crate) others: &'a [CertificateDer<'a>],
    pub(crate) now: UnixTime,
    pub(crate) provider: &'a Arc<CryptoProvider>,
}

/// Starts a client configuration trusting only the certificates accepted by the judge.
///
/// # Errors
/// When the provider does not support one of the TLS versions.
pub(crate) fn client(
    judge: Arc<impl Judge>,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Arc::new(Verifier {
        judge,
        provider: Arc::clone(&provider),
    });
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(verifier))
}

#[derive(Debug)]
struct Verifier<J> {
    judge: Arc<J>,
    provider: Arc<CryptoProvider>,
}

impl<J: Judge> ServerCertVerifier for Verifier<J> {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge.judge(&Shown {
            own,
            others,
            now,
            provider: &self.provider,
        })?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
