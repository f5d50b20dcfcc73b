//! TLS to the server. The client trusts a single authority, by the SHA-256 of its certificate, and
//! the server certificates of the authority. During a rotation the client also trusts the
//! successor. The address of the server and the local clock are not checked, because the
//! certificate has no end date.

use std::sync::Arc;

use muster_core::values::Digest;
use muster_core::wire::enrol::SERVER_NAME;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};

use crate::pinned::{self, Judge, Shown};

/// Trust in authorities, by the digests of their certificates.
#[derive(Debug)]
struct Authorities(Vec<Digest>);

/// Returns a configuration trusting the given authorities alone. Shows the certificate, if present.
pub(super) fn config(
    authorities: Vec<Digest>,
    key: &str,
    certificate: Option<&str>,
) -> anyhow::Result<ClientConfig> {
    let builder = pinned::client(Arc::new(Authorities(authorities)), &[&TLS13])?;
    Ok(match certificate {
        Some(certificate) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?
        }
        None => builder.with_no_client_auth(),
    })
}

/// Returns the digest of a certificate in PEM. `None`: the text is no certificate.
pub(super) fn digest_of(pem: &str) -> Option<Digest> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    Some(Digest::of(&certificate))
}

impl Judge for Authorities {
    fn judge(&self, shown: &Shown<'_>) -> Result<(), Error> {
        let authority = shown
            .others
            .iter()
            .find(|certificate| self.0.contains(&Digest::of(certificate)));
        let stranger = "not the server that this agent was enrolled at: its authority is another one; after a rotation that the agent missed, enrol the agent again";
        let authority = authority.ok_or_else(|| Error::General(stranger.into()))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(shown.provider),
        );
        let verifier = verifier
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        let name = ServerName::try_from(SERVER_NAME)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        verifier
            .verify_server_cert(shown.own, &[], &name, &[], shown.now)
            .map(drop)
    }
}
