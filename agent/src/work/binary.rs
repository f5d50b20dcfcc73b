//! muster-node itself, as the agent pushes it onto installed systems.

use std::path::Path;

use bytes::Bytes;
use muster_core::values::Digest;

/// The static executable, held in memory: it is small, and a file that changes under a running agent is pushed half old, half new.
#[derive(Clone)]
pub struct NodeBinary {
    pub bytes: Bytes,
    pub digest: Digest,
}

impl NodeBinary {
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
