//! Calls about blobs, by digest.

use std::path::Path;
use std::time::Duration;

use http::Method;
use muster_core::values::Digest;
use tokio_util::io::ReaderStream;

use super::{Client, ClientError};

/// Timeout of an upload: 100 GB at 30 MB/s.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(3600);

impl Client {
    /// Returns whether the server has a blob.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn has_blob(&self, digest: Digest) -> Result<bool, ClientError> {
        match self
            .perform(self.request(Method::HEAD, &["blobs", "sha256", &digest.hex()]))
            .await
        {
            Ok(()) => Ok(true),
            Err(error) if error.status() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Uploads a file as the blob with this digest. The upload is skipped when the server has the
    /// blob.
    ///
    /// # Errors
    /// 422 when the file has another digest; see [`ClientError`].
    pub async fn upload_blob(&self, digest: Digest, path: &Path) -> Result<(), ClientError> {
        if self.has_blob(digest).await? {
            return Ok(());
        }
        let unreadable = |source| ClientError::File {
            path: path.display().to_string(),
            source,
        };
        let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
        let length = file.metadata().await.map_err(unreadable)?.len();
        let request = self
            .request(Method::PUT, &["blobs", "sha256", &digest.hex()])
            .timeout(UPLOAD_TIMEOUT)
            .header("content-type", "application/octet-stream")
            .header("content-length", length)
            .body(reqwest::Body::wrap_stream(ReaderStream::with_capacity(
                file,
                256 << 10,
            )));
        self.perform(request).await
    }
}
