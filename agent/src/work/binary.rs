//! The muster-node executable installed by the agent on nodes.

use std::path::Path;

use bytes::Bytes;
use muster_core::values::Digest;

/// The static executable, held in memory because the file is small. A file changing under a running
/// agent could be sent half old, half new.
#[derive(Clone)]
pub struct NodeBinary {
    /// Content of the executable.
    pub bytes: Bytes,
    /// SHA-256 of the content.
    pub digest: Digest,
}

impl NodeBinary {
    /// Reads the executable and computes the digest.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn load(path: &Path) -> std::io::Result<Self> {
        let bytes = tokio::fs::read(path).await?;
        Ok(Self {
            digest: Digest::of(&bytes),
            bytes: bytes.into(),
        })
    }
}

impl std::fmt::Debug for NodeBinary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeBinary")
            .field("digest", &self.digest)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}
