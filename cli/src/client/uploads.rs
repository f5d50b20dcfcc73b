//! `muster blob`: uploads of files.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use muster_api::client::ClientError;
use muster_core::values::Digest;
use sha2::{Digest as _, Sha256};

use super::session::Session;

/// Subcommands of stored blobs, as used by images and stacks.
#[derive(Debug, Subcommand)]
pub(crate) enum BlobVerb {
    /// Upload files, and print their digests. Stored blobs are not sent again
    Put {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

pub(super) async fn run(session: &Session, verb: BlobVerb) -> anyhow::Result<()> {
    let BlobVerb::Put { files } = verb;
    for file in files {
        let path = file.clone();
        let digest = tokio::task::spawn_blocking(move || digest(&path)).await??;
        session.client.upload_blob(digest, &file).await?;
        let told =
            serde_json::json!({ "name": digest.to_string(), "file": file.display().to_string() });
        session
            .output
            .print_lines(&told, || vec![format!("{digest} {}", file.display())])?;
    }
    Ok(())
}

fn digest(path: &Path) -> Result<Digest, ClientError> {
    let unreadable = |source| ClientError::File {
        path: path.display().to_string(),
        source,
    };
    let mut file = std::fs::File::open(path).map_err(unreadable)?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).map_err(unreadable)? {
            0 => return Ok(Digest(hasher.finalize().into())),
            read => hasher.update(&buffer[..read]),
        }
    }
}
