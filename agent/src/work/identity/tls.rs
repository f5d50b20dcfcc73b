//! TLS to the server: one authority is trusted, by the SHA-256 of its certificate, and whom it certified as the server. At which address that one answers
//! does not matter, nor what this machine's clock says: the certificate has no end.

use std::sync::Arc;

use muster_core::values::Digest;
use muster_core::wire::enrol::SERVER_NAME;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Trusts one authority.
#[derive(Debug)]
pub(super) struct Trusted {
    authority: Digest,
    provider: Arc<CryptoProvider>,
}

impl Trusted {
    pub(super) fn new(authority: Digest) -> Self {
        Self { authority, provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()) }
    }
}

/// A configuration that trusts so, and shows the certificate where there is one.
pub(super) fn config(trusted: Trusted, key: &str, certificate: Option<&str>) -> anyhow::Result<ClientConfig> {
    let provider = Arc::clone(&trusted.provider);
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(trusted));
    Ok(match certificate {
        Some(certificate) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?
        }
        None => builder.with_no_client_auth(),
    })
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _address: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = intermediates.iter().find(|certificate| Digest::of(certificate) == self.authority);
        let stranger = "not the server that this agent was enrolled at: its authority is another one";
        let authority = authority.ok_or_else(|| Error::General(stranger.into()))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider));
        let verifier = verifier.build().map_err(|error| Error::General(error.to_string()))?;
        let name =
            ServerName::try_from(SERVER_NAME).map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        verifier.verify_server_cert(end_entity, &[], &name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
