//! Files: compared by digest, mode and owner; written atomically.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muster_core::stacks::PlannedFile;
use muster_core::wire::node::{Failure, FailureCode};
use sha2::{Digest as _, Sha256};

use super::item::{ABSENT, Item};
use crate::failure::{fatal, io};
use crate::machine::Machine;

/// Longest file that is hashed, in bytes. A longer file is described by its length; Muster never
/// writes such a file.
const HASHED_MAX: u64 = 64 << 20;
pub(super) const USERS: &str = "/etc/passwd";
pub(super) const GROUPS: &str = "/etc/group";

/// The wanted state of a file.
#[derive(Clone)]
pub struct Target {
    pub path: String,
    pub mode: u32,
    pub owner: String,
    pub group: String,
    /// The content; `None` when the file must be absent.
    pub content: Option<Vec<u8>>,
    pub secret: bool,
    /// SHA-256 of the content written by a stack before, when the content was not a secret.
    pub(super) former: Option<String>,
}

impl Target {
    /// Builds a file of Muster: owned by root, readable by all.
    pub(super) fn ours(path: &str, content: Option<impl Into<Vec<u8>>>) -> Self {
        let root = || "root".to_owned();
        let content = content.map(Into::into);
        Self {
            path: path.into(),
            mode: 0o644,
            owner: root(),
            group: root(),
            content,
            secret: false,
            former: None,
        }
    }

    /// Builds a file of the plan.
    ///
    /// # Errors
    /// `bad_plan` when its content is not base64 or its mode not octal.
    pub(super) fn planned(file: &PlannedFile) -> Result<Self, Failure> {
        let bad = |what| fatal(FailureCode::BadPlan, format!("file {}: {what}", file.path));
        Ok(Self {
            path: file.path.clone(),
            mode: file.mode().ok_or_else(|| bad("its mode is not octal"))?,
            owner: file.owner.clone(),
            group: file.group.clone(),
            content: Some(
                STANDARD
                    .decode(&file.content)
                    .map_err(|_| bad("its content is not base64"))?,
            ),
            secret: file.secret,
            former: None,
        })
    }

    /// Returns the name of the file's item.
    pub(super) fn item_name(&self) -> String {
        format!("file {}", self.path)
    }

    /// Observes the present file. `key` blinds the digests of possible secrets: two reports of one
    /// run can be compared, but the content cannot be guessed.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn observe(&self, machine: &Machine, key: &[u8; 32]) -> Result<Item, Failure> {
        let found = self.look(machine, key).map_err(io(&self.path))?;
        Ok(match &self.content {
            None => Item {
                fits: found.is_none(),
                ..Item::new(self.item_name(), ABSENT, found)
            },
            Some(content) => {
                let wanted = format!(
                    "{} {:04o} {}:{}",
                    self.shown(&sha256(content), key),
                    self.mode,
                    self.owner,
                    self.group
                );
                Item::new(self.item_name(), wanted, found)
            }
        })
    }

    fn look(&self, machine: &Machine, key: &[u8; 32]) -> std::io::Result<Option<String>> {
        let path = machine.path(&self.path);
        let metadata = match path.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !metadata.is_file() {
            let what = if metadata.is_dir() {
                "a folder"
            } else {
                "a link or special file"
            };
            return Ok(Some(what.into()));
        }
        let content = match metadata.len() {
            len @ ..=HASHED_MAX => self.shown(&hash_file(&path, len)?, key),
            len => format!("{len} bytes"),
        };
        let name = |database, id| {
            machine
                .account_name(database, id)
                .unwrap_or_else(|_| id.to_string())
        };
        let (owner, group) = (name(USERS, metadata.uid()), name(GROUPS, metadata.gid()));
        Ok(Some(format!(
            "{content} {:04o} {owner}:{group}",
            metadata.mode() & 0o7777
        )))
    }

    /// Formats a digest. Plain digests are shown only for content of this plan or of a former plan.
    /// Other content may be, or may have been, a secret.
    fn shown(&self, digest: &[u8; 32], key: &[u8; 32]) -> String {
        let plain = hex::encode(digest);
        let wanted = self
            .content
            .as_ref()
            .is_some_and(|content| sha256(content) == *digest);
        match !self.secret && (wanted || self.former.as_ref() == Some(&plain)) {
            true => format!("sha256:{plain}"),
            false => format!(
                "keyed:{}",
                hex::encode(&sha256(&[key.as_slice(), digest].concat())[..16])
            ),
        }
    }

    /// Writes or removes the file.
    ///
    /// # Errors
    /// `owner_unknown`, or `io`.
    pub(super) fn write(&self, machine: &Machine) -> Result<(), Failure> {
        let path = machine.path(&self.path);
        let Some(content) = &self.content else {
            return match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(io(&self.path)(error))
                }
                _ => Ok(()),
            };
        };
        let id = |database, name: &str| {
            let unknown = || {
                fatal(
                    FailureCode::OwnerUnknown,
                    format!("file {}: no {name:?} in {database}", self.path),
                )
            };
            // A number is valid as an owner without a name.
            machine
                .account_id(database, name)?
                .or_else(|| name.parse().ok())
                .ok_or_else(unknown)
        };
        let (uid, gid) = (id(USERS, &self.owner)?, id(GROUPS, &self.group)?);
        replace(&path, content, self.mode, uid, gid).map_err(io(&self.path))
    }
}

/// Replaces a file through a fixed temporary name, so that the next run reuses the file of a killed
/// run. Owner and mode are set before the rename.
fn replace(path: &Path, content: &[u8], mode: u32, uid: u32, gid: u32) -> std::io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(folder)?;
    let temporary = folder.join(format!(".{}.muster", name.to_string_lossy()));
    let _ = std::fs::remove_file(&temporary);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(content)?;
    std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    File::open(folder)?.sync_all()
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn hash_file(path: &Path, len: u64) -> std::io::Result<[u8; 32]> {
    let mut bytes = Vec::new();
    File::open(path)?.take(len).read_to_end(&mut bytes)?;
    Ok(sha256(&bytes))
}
