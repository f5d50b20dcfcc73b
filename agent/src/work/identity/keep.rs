//! The agent's key and certificate on disk: one file that nobody else may read, replaced whole.

use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use muster_core::values::{Digest, Secret};
use muster_core::wire::enrol::Issued;
use serde::{Deserialize, Serialize};

/// What is kept. `Debug` shows no key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Of the enrolment token: another one begins anew.
    pub token: Digest,
    /// The SHA-256 of the authority's certificate.
    pub authority: Digest,
    /// PKCS#8, PEM.
    pub key: Secret,
    /// None until the server answered the enrolment.
    pub issued: Option<Issued>,
}

/// The file.
#[derive(Clone, Debug)]
pub struct Keep(PathBuf);

impl Keep {
    /// `identity.json` of a data directory, which is made.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn at(data_dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(data_dir)?;
        Ok(Self(data_dir.join("identity.json")))
    }

    /// What was kept last.
    ///
    /// # Errors
    /// When it cannot be read, is something else, or others may read it.
    pub fn read(&self) -> io::Result<Option<Kept>> {
        let bytes = match std::fs::read(&self.0) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if std::fs::metadata(&self.0)?.permissions().mode() & 0o077 != 0 {
            let what = format!("{} holds the agent's key and may be read by others: chmod 600 it", self.0.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok(Some(serde_json::from_slice(&bytes)?))
    }

    /// Replaces what was kept; on disk when this returns.
    ///
    /// # Errors
    /// When the disk takes it not; then what was kept is still there.
    pub fn write(&self, kept: &Kept) -> io::Result<()> {
        let draft = self.0.with_extension("new");
        // One that a process left that was killed may have another mode.
        std::fs::remove_file(&draft).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&serde_json::to_vec(kept)?)?;
        file.sync_all()?;
        std::fs::rename(&draft, &self.0)?;
        std::fs::File::open(self.0.parent().unwrap_or(Path::new(".")))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::at(dir.path()).unwrap();
        assert!(keep.read().unwrap().is_none());
        let of = |text: &str| Digest::of(text.as_bytes());
        let kept = Kept { token: of("t"), authority: of("a"), key: Secret::new("private"), issued: None };
        std::fs::write(dir.path().join("identity.new"), "left by a process that was killed").unwrap();
        keep.write(&kept).unwrap();
        let path = dir.path().join("identity.json");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(keep.read().unwrap().unwrap().key.reveal(), "private");
        assert!(!format!("{kept:?}").contains("private"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(keep.read().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
