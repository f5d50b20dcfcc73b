//! What the image and stack builds left, with its digests.

use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::images::ImageManifest;
use muster_core::values::Digest;
use sha2::{Digest as _, Sha256};

/// Paths of everything the main job installs from.
#[derive(Clone, Debug)]
pub struct Artifacts {
    /// The builds' output: `ipxe/`, `live/`, `debian-12/`.
    pub cache: PathBuf,
    /// The statically linked node program.
    pub muster_node: PathBuf,
    /// The stack with its lock.
    pub stack: PathBuf,
    /// Blobs of the stack's bundle.
    pub bundle: PathBuf,
    /// The suite the pool demands.
    pub suite: PathBuf,
    /// The hardware profile of the rack's machines.
    pub profile: PathBuf,
}

impl Artifacts {
    /// The live image: kernel and initial RAM disk.
    pub fn live(&self) -> [PathBuf; 2] {
        [
            self.cache.join("live/vmlinuz"),
            self.cache.join("live/initrd.zst"),
        ]
    }

    /// The reference image.
    pub fn image(&self) -> PathBuf {
        self.cache.join("debian-12/image.raw.zst")
    }

    /// Its manifest.
    ///
    /// # Errors
    /// When it is not there or cannot be read.
    pub fn image_manifest(&self) -> anyhow::Result<ImageManifest> {
        let path = self.cache.join("debian-12/manifest.json");
        let text = std::fs::read(&path)
            .with_context(|| format!("{}: build it with `make images`", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{}", path.display()))
    }
}

/// Reads a TOML document as JSON, which is what the API takes.
///
/// # Errors
/// When it is not there or not TOML.
pub(super) fn toml_as_json(path: &Path) -> anyhow::Result<serde_json::Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{}", path.display()))
}

/// The digest of a file of any size.
///
/// # Errors
/// When it cannot be read.
pub(super) fn digest(path: &Path) -> anyhow::Result<Digest> {
    let mut file = std::fs::File::open(path).with_context(|| format!("{}", path.display()))?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher)?;
    Ok(Digest(hasher.finalize().into()))
}
