//! Downloads a blob from the server. A broken connection is resumed, and the content is verified
//! before use.

use std::io;
use std::time::Duration;

use futures::StreamExt as _;
use http::{StatusCode, header};
use muster_core::values::Digest;
use muster_core::wire::REQUEST;
use reqwest::Response;
use uuid::Uuid;

use super::{Draft, Fetched};

/// Maximum number of attempts per download. Each continues at the last received byte.
const TRIES: u32 = 5;
/// A server silent for this long is treated as stalled.
const STALL: Duration = Duration::from_secs(30);
/// Maximum size of a blob in bytes. No image is larger, and a longer answer would only fill the
/// disk.
const MAX_BLOB: u64 = 1 << 40;

/// The origin of blobs: `GET {base_url}/agent/v1/blobs/sha256/<hex>`.
#[derive(Clone, Debug)]
pub struct BlobSource {
    /// The URL of the server without a trailing slash.
    pub base_url: String,
    /// The HTTP client with the certificate of the agent.
    pub client: reqwest::Client,
}

/// The reason why a blob could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("the blob cache cannot be written or read: {0}")]
    Cache(#[from] io::Error),
    #[error("the server refused blob {digest}: {status}")]
    Refused { digest: Digest, status: StatusCode },
    #[error(
        "blob {wanted} arrived as {got}: the server's copy is damaged, or something on the way changed it"
    )]
    WrongContent { wanted: Digest, got: Digest },
    #[error("blob {digest} could not be fetched in {TRIES} tries: {last}")]
    Unreachable { digest: Digest, last: String },
}

impl FetchError {
    /// Returns whether a later retry can succeed.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Cache(_) | Self::Unreachable { .. } => true,
            Self::Refused { .. } | Self::WrongContent { .. } => false,
        }
    }
}

/// The reason why an attempt ended early.
enum Broken {
    /// A further attempt can continue the download.
    Off(String),
    Final(FetchError),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Final(error.into())
    }
}

/// Downloads the blob into the draft and verifies the digest.
pub(super) async fn download(
    draft: &mut Draft,
    digest: Digest,
    source: &BlobSource,
    progress: &(dyn Fn(Fetched) + Send + Sync),
) -> Result<(), FetchError> {
    let mut last = String::new();
    for attempt in 0..TRIES {
        if attempt > 0 {
            tokio::time::sleep(Duration::from_millis(500) * 2_u32.pow(attempt - 1)).await;
        }
        match continue_download(draft, digest, source, progress).await {
            Ok(()) => {
                let got = draft.digest();
                return if got == digest {
                    Ok(())
                } else {
                    Err(FetchError::WrongContent {
                        wanted: digest,
                        got,
                    })
                };
            }
            Err(Broken::Final(error)) => return Err(error),
            Err(Broken::Off(why)) => {
                tracing::warn!(%digest, at = draft.written, why, "blob download interrupted; retrying");
                last = why;
            }
        }
    }
    Err(FetchError::Unreachable { digest, last })
}

async fn continue_download(
    draft: &mut Draft,
    digest: Digest,
    source: &BlobSource,
    progress: &(dyn Fn(Fetched) + Send + Sync),
) -> Result<(), Broken> {
    let response = ask(draft.written, digest, source).await?;
    if response.status() != StatusCode::PARTIAL_CONTENT {
        draft.clear().await?;
    }
    let total = response.content_length().map(|rest| draft.written + rest);
    let mut body = response.bytes_stream();
    loop {
        let next = tokio::time::timeout(STALL, body.next())
            .await
            .map_err(|_| Broken::Off("the server stopped sending".to_owned()))?;
        let Some(chunk) = next else { break };
        draft
            .write(&chunk.map_err(|error| Broken::Off(error.to_string()))?)
            .await?;
        if draft.written > total.unwrap_or(MAX_BLOB) {
            return Err(Broken::Off("the server sent more than it said".to_owned()));
        }
        progress(Fetched {
            done: draft.written,
            total,
        });
    }
    match total {
        Some(total) if draft.written < total => Err(Broken::Off(format!(
            "the connection ended after {} of {total} bytes",
            draft.written
        ))),
        _ => Ok(()),
    }
}

async fn ask(from: u64, digest: Digest, source: &BlobSource) -> Result<Response, Broken> {
    let url = format!("{}/agent/v1/blobs/sha256/{}", source.base_url, digest.hex());
    let id = Uuid::now_v7();
    let mut request = source.client.get(url).header(REQUEST, id.to_string());
    if from > 0 {
        request = request.header(header::RANGE, format!("bytes={from}-"));
    }
    let sent = tokio::time::timeout(STALL, request.send())
        .await
        .map_err(|_| Broken::Off("the server does not answer".to_owned()))?;
    let response = sent.map_err(|error| Broken::Off(error.to_string()))?;
    let status = response.status();
    match status {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(response),
        StatusCode::RANGE_NOT_SATISFIABLE
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_MANY_REQUESTS => Err(Broken::Off(status.to_string())),
        _ if status.is_server_error() => Err(Broken::Off(format!("{status} (request {id})"))),
        _ => Err(Broken::Final(FetchError::Refused { digest, status })),
    }
}
