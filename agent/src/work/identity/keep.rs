//! The key and certificate of the agent on disk, in a single private file, replaced atomically.

use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use muster_core::values::{Digest, Secret};
use muster_core::wire::enrol::Issued;
use serde::{Deserialize, Serialize};

use crate::private;

/// The stored identity. `Debug` hides the key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Digest of the enrolment token. Another token starts a new enrolment.
    pub token: Digest,
    /// The SHA-256 of the certificate of the authority.
    pub authority: Digest,
    /// The SHA-256 of the certificate of the successor during a rotation. An agent of the previous
    /// version ignores the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_authority: Option<Digest>,
    /// The private key in PKCS#8, PEM.
    pub key: Secret,
    /// The private key of a renewal without an answer. The next request uses the same key: the
    /// server then recognises a repeated request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_key: Option<Secret>,
    /// The certificate. `None` until the server answered the enrolment.
    pub issued: Option<Issued>,
    /// The previous valid identity, kept until the server answers the new enrolment.
    #[serde(default)]
    pub before: Option<Box<Kept>>,
}

impl Kept {
    /// Returns the identity with a certificate: the current or the previous identity.
    pub fn enrolled(self) -> Option<Self> {
        match self.issued {
            Some(_) => Some(self),
            None => self.before.map(|before| *before),
        }
    }

    /// Returns the trusted authorities.
    pub fn authorities(&self) -> Vec<Digest> {
        let first = std::iter::once(self.authority);
        first.chain(self.next_authority).collect()
    }

    /// Returns the identity with other trusted authorities. An empty list changes nothing.
    pub fn trusting(self, authorities: &[Digest]) -> Self {
        match authorities {
            [] => self,
            [authority, others @ ..] => Self {
                authority: *authority,
                next_authority: others.first().copied(),
                ..self
            },
        }
    }

    /// Whether the previous identity belongs to another installation.
    pub fn is_elsewhere(&self) -> bool {
        let before = self.before.as_ref();
        before.is_some_and(|before| !before.authorities().contains(&self.authority))
    }

    /// Returns the identity for a token.
    ///
    /// # Errors
    /// For a new token. The error holds the identity that has a certificate, if any.
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

/// The identity file.
#[derive(Clone, Debug)]
pub struct Keep(PathBuf);

impl Keep {
    /// Returns the file `identity.json` in the data directory, and creates the directory.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn at(data_dir: &Path) -> io::Result<Self> {
        private::create_dir(data_dir)?;
        Ok(Self(data_dir.join("identity.json")))
    }

    /// Reads the stored identity.
    ///
    /// # Errors
    /// When the file cannot be read, is invalid, or is readable by other users. The last error is
    /// [`io::ErrorKind::InvalidData`]: the program has access, and the file has a wrong mode.
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
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Some(serde_json::from_slice(&bytes)?))
    }

    /// Replaces the stored identity on disk before returning.
    ///
    /// # Errors
    /// When the disk write fails. The old identity is then unchanged.
    pub fn write(&self, kept: &Kept) -> io::Result<()> {
        let draft = self.0.with_extension("new");
        // A draft of a killed process can have another mode.
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
            next_authority: None,
            key: Secret::new("private"),
            next_key: None,
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
        let refused = keep.read().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
    }

    #[test]
    fn the_file_of_the_previous_version_trusts_one_authority() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::at(dir.path()).unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|text| Digest::of(text.as_bytes()));
        let text =
            format!(r#"{{"token":"{a}","authority":"{a}","key":"k","issued":null,"before":null}}"#);
        let mut file = private::create_file(&dir.path().join("identity.json")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let kept = keep.read().unwrap().unwrap();
        assert_eq!(kept.authorities(), [a]);

        let both = kept.trusting(&[a, b]);
        keep.write(&both).unwrap();
        assert_eq!(keep.read().unwrap().unwrap().authorities(), [a, b]);
        assert_eq!(both.clone().trusting(&[]).authorities(), [a, b]);
        assert_eq!(both.clone().trusting(&[b]).authorities(), [b]);
        // A token with the successor is of the same installation.
        let begun = |authority| Kept {
            authority,
            before: Some(Box::new(both.clone())),
            ..both.clone()
        };
        assert!(!begun(a).is_elsewhere() && !begun(b).is_elsewhere());
        assert!(begun(c).is_elsewhere());
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
            next_authority: None,
            key: Secret::new("k"),
            next_key: None,
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
        // The same token keeps the key. The earlier token or no token returns to the earlier
        // identity. A third token drops the second.
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
