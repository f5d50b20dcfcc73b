//! Paths and digests of the files made by the image and stack builds.

use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::images::ImageManifest;
use muster_core::values::Digest;
use sha2::{Digest as _, Sha256};

/// Paths of all files needed by the main job for an installation.
#[derive(Clone, Debug)]
pub struct Artifacts {
    /// Output directory of the builds, with `ipxe/`, `live/` and `debian-12/`.
    pub cache: PathBuf,
    /// The statically linked node program, `muster-node`.
    pub muster_node: PathBuf,
    /// The stack document with its lock.
    pub stack: PathBuf,
    /// Directory with the blobs of the stack's bundle.
    pub bundle: PathBuf,
    /// The gate suite required by the pool.
    pub suite: PathBuf,
    /// The hardware profile of the rack's machines.
    pub profile: PathBuf,
}

impl Artifacts {
    /// Returns the paths of the live image: kernel and initial RAM disk.
    pub fn live(&self) -> [PathBuf; 2] {
        [
            self.cache.join("live/vmlinuz"),
            self.cache.join("live/initrd.zst"),
        ]
    }

    /// Returns the path of the reference image.
    pub fn image(&self) -> PathBuf {
        self.cache.join("debian-12/image.raw.zst")
    }

    /// Reads the manifest of the reference image.
    ///
    /// # Errors
    /// When the manifest is missing, unreadable or malformed.
    pub fn image_manifest(&self) -> anyhow::Result<ImageManifest> {
        let path = self.cache.join("debian-12/manifest.json");
        let text = std::fs::read(&path)
            .with_context(|| format!("{}: build it with `make images`", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{}", path.display()))
    }
}

/// Reads a TOML document and returns the same document as JSON, the format of the API.
///
/// # Errors
/// When the file is missing or is not valid TOML.
pub(super) fn toml_as_json(path: &Path) -> anyhow::Result<serde_json::Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{}", path.display()))
}

/// Computes the SHA-256 digest of a file of any size. The file is streamed, never loaded whole.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn digest(path: &Path) -> anyhow::Result<Digest> {
    let mut file = std::fs::File::open(path).with_context(|| format!("{}", path.display()))?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher)?;
    Ok(Digest(hasher.finalize().into()))
}
