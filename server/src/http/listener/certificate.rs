//! The certificate of the public listener. The files are read again when they change, so a renewed
//! certificate needs no restart.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use muster_core::values::Digest;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The interval between two looks at the files.
const EVERY: Duration = Duration::from_secs(10);
/// The largest file, in bytes.
const LARGEST: u64 = 1 << 20;

/// A certificate and its key, in two files.
#[derive(Debug)]
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    /// The digests of the files that were read last, good or not.
    files: [Digest; 2],
    certified: Arc<CertifiedKey>,
}

/// The content of both files.
struct Files {
    chain: Vec<u8>,
    key: Vec<u8>,
}

impl Certificate {
    /// Reads the certificate with its chain, and the key, from files in PEM.
    ///
    /// # Errors
    /// When a file cannot be read, or the key does not belong to the certificate.
    pub fn load(chain: PathBuf, key: PathBuf) -> anyhow::Result<Arc<Self>> {
        let provider = Arc::new(default_provider());
        let files = Files::read(&chain, &key)?;
        let held = Held {
            files: files.digests(),
            certified: Arc::new(files.certify(&provider)?),
        };
        Ok(Arc::new(Self {
            chain,
            key,
            provider,
            held: Mutex::new(held),
        }))
    }

    /// Builds the acceptor of TLS handshakes, with HTTP/2 and HTTP/1.1.
    ///
    /// # Errors
    /// When the provider has no protocol version.
    pub fn acceptor(self: &Arc<Self>) -> anyhow::Result<TlsAcceptor> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth();
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        let mut config = builder.with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Reads the files again. Returns whether a changed certificate is now in use. The former
    /// certificate stays in use after an error.
    ///
    /// # Errors
    /// When a changed file cannot be read, or the key does not belong to the certificate. The same
    /// content is reported once.
    pub fn reload(&self) -> anyhow::Result<bool> {
        let files = Files::read(&self.chain, &self.key)?;
        let digests = files.digests();
        let mut held = self.lock();
        if held.files == digests {
            return Ok(false);
        }
        held.files = digests;
        held.certified = Arc::new(files.certify(&self.provider)?);
        Ok(true)
    }

    /// Reads the files again in an interval, until stopped.
    pub async fn follow(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            let certificate = Arc::clone(&self);
            let reloaded = tokio::task::spawn_blocking(move || certificate.reload()).await;
            match reloaded {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => tracing::info!("the changed certificate is in use"),
                Ok(Err(error)) => tracing::warn!(
                    error = format!("{error:#}"),
                    "the changed certificate is not in use; the former one stays"
                ),
                Err(error) => tracing::error!(%error, "the certificate could not be read again"),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.lock().certified))
    }
}

impl Files {
    fn read(chain: &Path, key: &Path) -> anyhow::Result<Self> {
        let chain = read(chain).with_context(|| format!("--tls-cert {}", chain.display()))?;
        let key = read(key).with_context(|| format!("--tls-key {}", key.display()))?;
        Ok(Self { chain, key })
    }

    fn digests(&self) -> [Digest; 2] {
        [Digest::of(&self.chain), Digest::of(&self.key)]
    }

    fn certify(&self, provider: &CryptoProvider) -> anyhow::Result<CertifiedKey> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&self.chain)
            .collect::<Result<_, _>>()
            .context("--tls-cert: certificates in PEM")?;
        ensure!(
            !chain.is_empty(),
            "--tls-cert has no certificate: write the server's certificate in PEM, then its chain"
        );
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .context("--tls-key has no key: write the key in PEM, without a password")?;
        CertifiedKey::from_der(chain, key, provider)
            .context("the key of --tls-key must belong to the first certificate of --tls-cert")
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?
        .take(LARGEST + 1)
        .read_to_end(&mut content)?;
    ensure!(
        content.len() as u64 <= LARGEST,
        "the file has more than {LARGEST} bytes"
    );
    Ok(content)
}
