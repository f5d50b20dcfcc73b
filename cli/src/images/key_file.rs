//! A private key in a file that the owner alone can read.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};
use muster_core::signatures::SecretKey;

/// The largest key file in bytes.
const LONGEST: u64 = 64 << 10;

/// Writes a new key.
///
/// # Errors
/// When the file exists or cannot be written.
pub(super) fn write_key(path: &Path, key: &SecretKey) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| {
        file.write_all(key.to_pem().as_bytes())?;
        file.sync_all()
    });
    written.with_context(|| format!("write the private key {}", path.display()))
}

/// Reads a key.
///
/// # Errors
/// When others may read the file, or the content is no key.
pub(super) fn read_key(path: &Path) -> anyhow::Result<SecretKey> {
    let named = || path.display().to_string();
    let metadata = std::fs::metadata(path).with_context(named)?;
    ensure!(
        metadata.mode() & 0o077 == 0,
        "the private key {} may be read by others: chmod 600 it",
        path.display()
    );
    ensure!(
        metadata.len() <= LONGEST,
        "{}: longer than {LONGEST} bytes",
        path.display()
    );
    let text = std::fs::read_to_string(path).with_context(named)?;
    SecretKey::from_pem(&text).map_err(|error| anyhow!("{}: {error}", path.display()))
}
