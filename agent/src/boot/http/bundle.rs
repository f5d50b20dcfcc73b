//! The offline repositories of stacks. A bundle is a blob, `{"files": {"Packages": "sha256:…", "runc_1.1.4_amd64.deb": "sha256:…"}}`; its own digest
//! is in the path, its names are looked up exactly, and each leads to another blob.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use muster_core::values::Digest;
use serde::Deserialize;

use crate::blobs::BlobCache;

/// A closure of packages has hundreds of files; 20,000 of them fit.
const MAX_DESCRIPTION: u64 = 4 << 20;
/// Descriptions kept parsed; a site has a few stacks at a time.
const KEPT: usize = 16;

/// What a bundle holds, by file name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    files: BTreeMap<String, Digest>,
}

/// Descriptions that were parsed lately. Content-addressed, so never stale.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    parsed: Mutex<HashMap<Digest, Arc<Description>>>,
}

impl Bundles {
    /// The blob behind a name of a bundle; `None` when there is no such bundle or no such name in it.
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
