//! Small files: reads with a size cap, and atomic writes.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use muster_core::wire::node::{Failure, FailureCode};
use nix::fcntl::OFlag;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{fatal, io};

/// Reads at most `max` bytes. A longer file is an error, because all files read here are short by
/// design.
///
/// # Errors
/// Returns the file system's error, or `InvalidData` when the file is longer than `max`.
pub fn read_capped(path: &Path, max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max {
        true => Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            format!("longer than {max} bytes"),
        )),
        false => Ok(bytes),
    }
}

/// Reads a JSON document; `None` when the file does not exist.
///
/// # Errors
/// `io`, or `malformed` when the content is not the expected document.
pub fn read_json<T: DeserializeOwned>(path: &Path, max: u64) -> Result<Option<T>, Failure> {
    let bytes = match read_capped(path, max) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(path.display())(error)),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        fatal(
            FailureCode::Malformed,
            format!("{}: {error}", path.display()),
        )
    })
}

/// Writes a JSON document durably: after a power loss the file holds either the whole old document
/// or the whole new document.
///
/// # Errors
/// `io`.
pub fn write_json(path: &Path, mode: u32, document: &impl Serialize) -> Result<(), Failure> {
    let bytes = serde_json::to_vec(document)
        .map_err(|error| fatal(FailureCode::Malformed, error.to_string()))?;
    write_durably(path, mode, &bytes).map_err(io(path.display()))
}

/// Writes a file under a temporary name, syncs the file, renames the file, and syncs the folder.
///
/// # Errors
/// Returns the file system's error.
pub fn write_durably(path: &Path, mode: u32, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().ok_or(std::io::ErrorKind::InvalidInput)?;
    std::fs::create_dir_all(folder)?;
    let mut name = path
        .file_name()
        .ok_or(std::io::ErrorKind::InvalidInput)?
        .to_owned();
    name.push(format!(".new.{}", std::process::id()));
    let temporary: PathBuf = folder.join(name);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Replaces the file `path` with the file `by`: after a power loss the whole old file or the whole
/// new file is there.
///
/// # Errors
/// Returns the file system's error.
pub fn replace_durably(path: &Path, by: &Path) -> std::io::Result<()> {
    File::open(by)?.sync_all()?;
    std::fs::rename(by, path)?;
    File::open(path.parent().ok_or(std::io::ErrorKind::InvalidInput)?)?.sync_all()
}

/// Returns random bytes from the kernel, for nonces and sentinels.
///
/// # Errors
/// `io`.
pub fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(io("/dev/urandom"))?;
    Ok(bytes)
}
