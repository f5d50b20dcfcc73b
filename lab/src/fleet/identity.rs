//! Enrolment of the fleet's agent, as in a real agent. The agent enrols once by its token and
//! keeps its key next to the token file. The process ends before its certificate expires, so the
//! certificate is never renewed.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use muster_core::values::Secret;
use muster_core::wire::enrol::{Enrol, Issued, SERVER_NAME};
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use reqwest::{Certificate, Identity};

use crate::parts::write_secret;

/// Request timeout, longer than a poll.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Enrolment attempts, a second apart. A starting server answers within a minute.
const TRIES: u32 = 60;

/// Returns a client with the agent's certificate, and the server's URL with the name in the
/// server's certificate.
pub(super) async fn enter(
    server: &str,
    token_file: &Path,
    token: &str,
) -> anyhow::Result<(reqwest::Client, String)> {
    let address = server
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let address = tokio::net::lookup_host(address)
        .await
        .context("the agents' listener")?
        .next();
    let address = address.with_context(|| format!("{server} has no address"))?;
    let url = format!("https://{SERVER_NAME}:{}", address.port());
    let path = |ending: &str| {
        token_file.with_file_name(format!(
            "{}.{ending}",
            token_file.file_name().unwrap_or_default().display()
        ))
    };
    let authority = std::fs::read(path("authority")).context("the authority's certificate")?;
    // The key is stored with its token. A new token leads to a new key.
    let kept = path("identity");
    let known = std::fs::read_to_string(&kept)
        .ok()
        .filter(|text| text.ends_with(token));
    let key = match &known {
        Some(text) => KeyPair::from_pem(text)?,
        None => KeyPair::generate_for(&PKCS_ED25519)?,
    };
    if known.is_none() {
        write_secret(&kept, &format!("{}\n{token}", key.serialize_pem()))?;
    }
    // The server answers a repeated enrolment with the same key, so only the key must be kept.
    let issued = enrol(&builder(address, &authority)?.build()?, &url, token, &key).await?;
    let identity =
        Identity::from_pem(format!("{}\n{}", key.serialize_pem(), issued.certificate).as_bytes())?;
    Ok((
        builder(address, &authority)?.identity(identity).build()?,
        url,
    ))
}

fn builder(address: SocketAddr, authority: &[u8]) -> anyhow::Result<reqwest::ClientBuilder> {
    let builder = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .connect_timeout(Duration::from_secs(5))
        .no_proxy();
    let builder = builder
        .redirect(reqwest::redirect::Policy::none())
        .https_only(true)
        .http1_only();
    Ok(builder
        .tls_certs_only([Certificate::from_pem(authority)?])
        .resolve(SERVER_NAME, address))
}

async fn enrol(
    client: &reqwest::Client,
    url: &str,
    token: &str,
    key: &KeyPair,
) -> anyhow::Result<Issued> {
    let request = CertificateParams::default().serialize_request(key)?.pem()?;
    let enrol = Enrol {
        token: Secret::new(token),
        request,
    };
    for _ in 0..TRIES {
        match client
            .post(format!("{url}/agent/v1/enrol"))
            .json(&enrol)
            .send()
            .await
        {
            Ok(answer) if answer.status().is_server_error() => {}
            Ok(answer) => {
                let status = answer.status();
                ensure!(
                    status.is_success(),
                    "not enrolled: {status} {}",
                    answer.text().await?
                );
                return Ok(answer.json().await?);
            }
            Err(error) => tracing::debug!(%error, "the server is away"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    anyhow::bail!("not enrolled: the server did not answer")
}
