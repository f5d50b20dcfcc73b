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
    /// What was good before this enrolment began, until it is answered.
    #[serde(default)]
    pub before: Option<Box<Kept>>,
}

impl Kept {
    /// What has a certificate: this, or what was before it.
    pub fn enrolled(self) -> Option<Self> {
        match self.issued {
            Some(_) => Some(self),
            None => self.before.map(|before| *before),
        }
    }

    /// What a token was used for.
    ///
    /// # Errors
    /// For nothing yet: what has a certificate meanwhile.
    pub fn of(self, token: Digest) -> Result<Self, Option<Box<Self>>> {
        if self.token == token {
            return Ok(self);
        }
        match self.enrolled() {
            Some(enrolled) if enrolled.token == token => Ok(enrolled),
            enrolled => Err(enrolled.map(Box::new)),
        }
    }
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
            let what = format!(
                "{} holds the agent's key and may be read by others: chmod 600 it",
                self.0.display()
            );
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
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
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
        let kept = Kept {
            token: of("t"),
            authority: of("a"),
            key: Secret::new("private"),
            issued: None,
            before: None,
        };
        std::fs::write(
            dir.path().join("identity.new"),
            "left by a process that was killed",
        )
        .unwrap();
        keep.write(&kept).unwrap();
        let path = dir.path().join("identity.json");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(keep.read().unwrap().unwrap().key.reveal(), "private");
        assert!(!format!("{kept:?}").contains("private"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(
            keep.read().unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }

    #[test]
    fn a_token_that_leads_nowhere_costs_no_certificate() {
        let of = |text: &str| Digest::of(text.as_bytes());
        let (from, to) = (
            "2026-01-01T00:00:00Z".parse().unwrap(),
            "2026-01-08T00:00:00Z".parse().unwrap(),
        );
        let issued = Issued {
            agent: muster_core::ids::AgentId::new(),
            site: "s".into(),
            certificate: "c".into(),
            authority: "a".into(),
            not_before: from,
            not_after: to,
        };
        let good = Kept {
            token: of("1"),
            authority: of("a"),
            key: Secret::new("k"),
            issued: Some(issued),
            before: None,
        };
        let before = good.clone().of(of("2")).unwrap_err();
        assert_eq!(before.as_ref().unwrap().token, of("1"));
        let begun = Kept {
            token: of("2"),
            issued: None,
            before,
            ..good.clone()
        };
        // Asked again with the same key; back with the earlier token, or with none; a third token forgets the second.
        assert_eq!(begun.clone().of(of("2")).unwrap().token, of("2"));
        assert_eq!(begun.clone().of(of("1")).unwrap().token, of("1"));
        assert_eq!(begun.clone().enrolled().unwrap().token, of("1"));
        assert_eq!(begun.of(of("3")).unwrap_err().unwrap().token, of("1"));
        assert!(
            Kept {
                issued: None,
                ..good
            }
            .enrolled()
            .is_none()
        );
    }
}
