//! The offline package repositories of stacks. A bundle is a blob, `{"files": {"Packages":
//! "sha256:…", "runc_1.1.4_amd64.deb": "sha256:…"}}`. The URL path contains the digest of the
//! bundle. File names are matched exactly, and each name refers to another blob.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use muster_core::values::Digest;
use serde::Deserialize;

use crate::blobs::BlobCache;

/// Maximum size of a bundle description. A dependency closure has hundreds of files, and 20,000
/// files fit.
const MAX_DESCRIPTION: u64 = 4 << 20;
/// Maximum number of parsed descriptions kept. A site uses a few stacks at a time.
const KEPT: usize = 16;

/// The files of a bundle by name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    files: BTreeMap<String, Digest>,
}

/// Recently parsed descriptions. The entries are content-addressed and never become stale.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    parsed: Mutex<HashMap<Digest, Arc<Description>>>,
}

impl Bundles {
    /// Returns the blob for a file name in a bundle, or `None` for an unknown bundle or name.
    pub(super) async fn find(
        &self,
        blobs: &BlobCache,
        bundle: Digest,
        name: &str,
    ) -> io::Result<Option<Digest>> {
        let kept = self.lock().get(&bundle).cloned();
        let description = match kept {
            Some(description) => description,
            None => {
                let Some(bytes) = blobs.read(bundle, MAX_DESCRIPTION).await? else {
                    return Ok(None);
                };
                let description = Arc::new(serde_json::from_slice::<Description>(&bytes)?);
                let mut parsed = self.lock();
                if parsed.len() >= KEPT {
                    parsed.clear();
                }
                parsed.insert(bundle, Arc::clone(&description));
                description
            }
        };
        Ok(description.files.get(name).copied())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, Arc<Description>>> {
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
