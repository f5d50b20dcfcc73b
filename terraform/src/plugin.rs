//! Start and authentication of a provider by Terraform (go-plugin's handshake). The handshake uses
//! a cookie in the environment, a Unix socket in a private directory, and TLS with a pinned
//! certificate on both sides. No other process can call the provider.

use std::convert::Infallible;
use std::os::unix::process::parent_id;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::NamedService;

use crate::dispatch::Controller;

/// Proves the start by Terraform and not by a person (go-plugin's `HandshakeConfig` of Terraform).
const COOKIE: (&str, &str) = (
    "TF_PLUGIN_MAGIC_COOKIE",
    "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2",
);
/// Interval for checking that Terraform still runs. A killed Terraform does not ask the provider to
/// end.
const ORPHAN_CHECK: Duration = Duration::from_secs(1);
/// Maximum connections waiting to be served. Terraform opens a single connection.
const BACKLOG: usize = 8;

/// Serves the calls of Terraform until Terraform asks the provider to end.
///
/// # Errors
/// Fails without the cookie or the certificate of Terraform, and when Terraform is gone.
pub(crate) async fn serve<S>(provider: S) -> anyhow::Result<()>
where
    S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    if std::env::var(COOKIE.0).as_deref() != Ok(COOKIE.1) {
        bail!("this is a Terraform provider, which `terraform` starts: see docs/terraform.md");
    }
    let parent = parent_id();
    let pem =
        std::env::var("PLUGIN_CLIENT_CERT").context("Terraform did not send its certificate")?;
    let client = CertificateDer::from_pem_slice(pem.as_bytes())
        .context("Terraform's certificate cannot be read")?;
    let (acceptor, certificate) = tls(client)?;
    let dir = tempfile::Builder::new()
        .prefix("muster-terraform-")
        .tempdir()?;
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket)?;
    let certificate = base64::engine::general_purpose::STANDARD_NO_PAD.encode(certificate);
    println!("1|6|unix|{}|grpc|{certificate}", socket.display());
    let (connections, accepted) = mpsc::channel(BACKLOG);
    let stop = Arc::new(tokio::sync::Notify::new());
    let stopped = Arc::clone(&stop);
    let served = tonic::transport::Server::builder()
        .add_service(Controller(stop))
        .add_service(provider)
        .serve_with_incoming_shutdown(ReceiverStream::new(accepted), async move {
            stopped.notified().await
        });
    tokio::select! {
        served = served => Ok(served?),
        listened = accept(listener, acceptor, connections) => listened,
        () = orphaned(parent) => bail!("Terraform is gone"),
        deaf = ignore_interrupts() => deaf,
    }
}

/// Ignores Ctrl-C. A Ctrl-C in the terminal also reaches the provider, and Terraform alone decides
/// how to react. Terraform stops the provider with `StopProvider`.
async fn ignore_interrupts() -> anyhow::Result<()> {
    loop {
        tokio::signal::ctrl_c().await?;
    }
}

/// Waits until the parent process is gone.
async fn orphaned(parent: u32) {
    while parent_id() == parent {
        tokio::time::sleep(ORPHAN_CHECK).await;
    }
}

/// Forwards the connections authenticated as Terraform's.
async fn accept(
    listener: UnixListener,
    acceptor: TlsAcceptor,
    connections: mpsc::Sender<std::io::Result<TlsStream<UnixStream>>>,
) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        match acceptor.accept(stream).await {
            Ok(stream) => connections.send(Ok(stream)).await?,
            Err(error) => eprintln!("a connection was refused: {error}"),
        }
    }
}

/// Returns the TLS setup for the pinned client, and the provider's own certificate.
fn tls(client: CertificateDer<'static>) -> anyhow::Result<(TlsAcceptor, CertificateDer<'static>)> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let certificate = rcgen::CertificateParams::new(vec!["localhost".into()])?
        .self_signed(&key)?
        .der()
        .clone();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(Pinned { client, provider }))
        .with_single_cert(
            vec![certificate.clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), certificate))
}

/// Accepts exactly a single client certificate. The certificate is its own authority (with a P-521
/// key), so no certificate path is built.
#[derive(Debug)]
struct Pinned {
    client: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match *certificate == self.client {
            true => Ok(ClientCertVerified::assertion()),
            false => Err(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer,
            )),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
