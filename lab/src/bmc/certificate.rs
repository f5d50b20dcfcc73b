//! The TLS identity of a BMC: a self-signed certificate, made once and kept on disk so that a
//! client can pin the certificate.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use muster_core::values::Digest;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::error::{LabError, io};

/// Reads or makes the identity; returns the TLS configuration and the SHA-256 of the certificate.
pub(crate) fn load_or_make(
    dir: &Path,
    address: Ipv4Addr,
) -> Result<(Arc<ServerConfig>, Digest), LabError> {
    let (certificate_path, key_path) = (dir.join("bmc-certificate.der"), dir.join("bmc-key.der"));
    if !certificate_path.exists() {
        let made = rcgen::generate_simple_self_signed(vec![address.to_string()])
            .map_err(|error| broken(&error))?;
        // Writes the certificate last: an existing certificate proves that the key exists.
        fs::write(&key_path, made.signing_key.serialize_der()).map_err(io("write a BMC's key"))?;
        fs::write(&certificate_path, made.cert.der()).map_err(io("write a BMC's certificate"))?;
    }
    let certificate = fs::read(&certificate_path).map_err(io("read a BMC's certificate"))?;
    let key = fs::read(&key_path).map_err(io("read a BMC's key"))?;
    let fingerprint = Digest::of(&certificate);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| broken(&error))?
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate)],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key)),
        )
        .map_err(|error| broken(&error))?;
    Ok((Arc::new(config), fingerprint))
}

fn broken(error: &dyn std::error::Error) -> LabError {
    LabError::Plan(format!("a BMC's TLS identity: {error}"))
}
