//! The master key: stored outside of the database, encrypts every secret by a data key for each
//! secret (envelope encryption). During a rotation a server holds two master keys: both open, and
//! the key named by the database seals.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use aes_gcm_siv::aead::{Aead as _, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Key, KeyInit as _, Nonce};
use anyhow::{Context as _, anyhow, ensure};
use aws_lc_rs::{constant_time, hmac};
use muster_core::values::Digest;

use super::marks::{self, MarkKey};
use super::rows::RowKey;
use crate::sealed::Sealed;

const NONCE_BYTES: usize = 12;

/// The keys outside of the database: 32 bytes each, in files of mode 0600.
pub struct MasterKey {
    /// The key of `--key-file` first.
    keys: Vec<HeldKey>,
    /// Position of the key that seals.
    sealing: Arc<AtomicUsize>,
    /// Whether the key of the database is not held. A secret sealed by a former key would be lost
    /// with that key.
    outdated: AtomicBool,
    /// The key for the seals over events that agents remember.
    pub marks: MarkKey,
    /// The keys for the seals over rows that decide rights.
    pub rows: RowKey,
}

struct HeldKey {
    /// The first 16 hex digits of the key's SHA-256.
    id: String,
    cipher: Aes256GcmSiv,
    /// The key for hashes that only this server can compute.
    hash_key: hmac::Key,
    /// The bytes of the key for the seals over events that agents remember.
    mark_bytes: [u8; 32],
    row_key: hmac::Key,
}

impl HeldKey {
    fn new(bytes: &[u8; 32]) -> Self {
        // Derived from the master key, so that a leak from one use of the key does not help to
        // attack the other.
        let derived = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, bytes),
            b"muster keyed hash v1",
        );
        Self {
            id: Digest::of(bytes).hex()[..16].to_owned(),
            cipher: Aes256GcmSiv::new(&Key::<Aes256GcmSiv>::from(*bytes)),
            hash_key: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()),
            mark_bytes: marks::derive(bytes),
            row_key: super::rows::derive(bytes),
        }
    }

    fn hash(&self, place: &str, secret: &[u8]) -> String {
        let tag = hmac::sign(&self.hash_key, &[place.as_bytes(), b"\n", secret].concat());
        hex::encode(&tag.as_ref()[..16])
    }
}

impl MasterKey {
    /// Reads the key file. With [`Create::WhenMissing`] a missing file is created with a random
    /// key.
    ///
    /// # Errors
    /// When the file is unreadable, is not 32 bytes long, or is accessible to group or others.
    pub fn load(path: &Path, create: Create) -> anyhow::Result<Self> {
        if create == Create::WhenMissing && !path.exists() {
            write_new(path, &rand::random::<[u8; 32]>())
                .with_context(|| format!("write the key file {}", path.display()))?;
        }
        let bytes = std::fs::read(path)
            .with_context(|| format!("the key file {} cannot be read", path.display()))?;
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path)?.permissions());
        ensure!(
            mode & 0o077 == 0,
            "the key file {} may be read by others: chmod 600 it",
            path.display()
        );
        let bytes: [u8; 32] = bytes
            .try_into()
            .map_err(|_| anyhow!("the key file {} is not 32 bytes long", path.display()))?;
        Ok(Self::from_bytes(&bytes))
    }

    /// Reads the key file, and the file of the former key during a rotation.
    ///
    /// # Errors
    /// As of [`MasterKey::load`], or when both files have the same key.
    pub fn load_both(path: &Path, former: Option<&Path>, create: Create) -> anyhow::Result<Self> {
        let key = Self::load(path, create)?;
        let Some(former) = former else { return Ok(key) };
        let other = Self::load(former, Create::Never)?;
        ensure!(
            key.newest_id() != other.newest_id(),
            "{} and {} have the same key: --key-file names the new key, --former-key-file the key before",
            path.display(),
            former.display()
        );
        Ok(key.holding(other))
    }

    /// Returns a key held in memory, for tests.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self::of(vec![HeldKey::new(bytes)])
    }

    fn of(keys: Vec<HeldKey>) -> Self {
        let sealing = Arc::new(AtomicUsize::new(0));
        let rows = keys.iter().map(|key| key.row_key.clone()).collect();
        Self {
            marks: MarkKey::new(&keys[0].mark_bytes),
            rows: RowKey::new(rows, Arc::clone(&sealing)),
            keys,
            sealing,
            outdated: AtomicBool::new(false),
        }
    }

    /// Returns a key that also opens secrets of other keys.
    pub fn holding(self, others: Self) -> Self {
        Self::of(self.keys.into_iter().chain(others.keys).collect())
    }

    fn sealing(&self) -> &HeldKey {
        &self.keys[self.sealing.load(Ordering::Relaxed)]
    }

    /// Returns the id of the key that seals.
    pub fn id(&self) -> &str {
        &self.sealing().id
    }

    /// Returns the id of the key in `--key-file`.
    pub fn newest_id(&self) -> &str {
        &self.keys[0].id
    }

    /// Returns the ids of all held keys.
    pub fn ids(&self) -> Vec<String> {
        self.keys.iter().map(|key| key.id.clone()).collect()
    }

    /// Whether the key with an id is held.
    pub fn holds(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id == id)
    }

    /// Seals with the key of an id from now on. `false`: the key is not held, and secrets are no
    /// longer sealed.
    pub fn seal_by(&self, id: &str) -> bool {
        let found = self.keys.iter().position(|key| key.id == id);
        self.outdated.store(found.is_none(), Ordering::Relaxed);
        if let Some(at) = found {
            self.sealing.store(at, Ordering::Relaxed);
        }
        found.is_some()
    }

    /// Returns the bytes of the mark key that the key with an id derives.
    pub(super) fn derived_mark(&self, id: &str) -> Option<[u8; 32]> {
        let found = self.keys.iter().find(|key| key.id == id);
        found.map(|key| key.mark_bytes)
    }

    /// Encrypts a secret with a fresh data key, which is wrapped by the master key. `place` (table
    /// and row) is authenticated too, so that a row copied elsewhere cannot be decrypted.
    ///
    /// # Errors
    /// When the cipher refuses the text, for example beyond 64 GiB, or the present key is not held.
    pub fn seal(&self, place: &str, secret: &[u8]) -> anyhow::Result<Sealed> {
        ensure!(
            !self.outdated.load(Ordering::Relaxed),
            "{place}: this server lacks the present master key: start the server with the file of that key"
        );
        let data_key: [u8; 32] = rand::random();
        let data = Aes256GcmSiv::new(&Key::<Aes256GcmSiv>::from(data_key));
        let key = self.sealing();
        Ok(Sealed {
            key_id: key.id.clone(),
            wrapped_key: encrypt(&key.cipher, place, &data_key)?,
            ciphertext: encrypt(&data, place, secret)?,
        })
    }

    /// Decrypts a secret sealed by [`MasterKey::seal`] for the same place.
    ///
    /// # Errors
    /// When the secret was sealed by a key that is not held, for another place, or was changed.
    pub fn open(&self, place: &str, sealed: &Sealed) -> anyhow::Result<Vec<u8>> {
        decrypt(
            &Aes256GcmSiv::new(&Key::<Aes256GcmSiv>::from(
                self.open_data_key(place, sealed)?,
            )),
            place,
            &sealed.ciphertext,
        )
    }

    /// Wraps the data key of a secret by the key that seals. The ciphertext stays the same, because
    /// the password of a BMC remembers the ciphertext of its credential.
    ///
    /// # Errors
    /// When the secret cannot be opened.
    pub fn wrap_again(&self, place: &str, sealed: &Sealed) -> anyhow::Result<Sealed> {
        // A secret that was changed by hand is reported now, not at the next use.
        self.open(place, sealed)?;
        let key = self.sealing();
        Ok(Sealed {
            key_id: key.id.clone(),
            wrapped_key: encrypt(&key.cipher, place, &self.open_data_key(place, sealed)?)?,
            ciphertext: sealed.ciphertext.clone(),
        })
    }

    fn open_data_key(&self, place: &str, sealed: &Sealed) -> anyhow::Result<[u8; 32]> {
        let key = self.keys.iter().find(|key| key.id == sealed.key_id);
        let key = key.with_context(|| {
            format!(
                "{place} was sealed by key {}, the server has key {}",
                sealed.key_id,
                self.ids().join(" and ")
            )
        })?;
        decrypt(&key.cipher, place, &sealed.wrapped_key)?
            .try_into()
            .map_err(|_| anyhow!("{place}: the wrapped key has the wrong length"))
    }

    /// Returns a keyed hash of a secret in its place: 32 hex digits. Comparing two hashes shows
    /// only whether the secret has changed.
    pub fn keyed_hash(&self, place: &str, secret: &[u8]) -> String {
        self.sealing().hash(place, secret)
    }

    /// Returns whether a keyed hash belongs to a secret in its place, by any held key. Compares in
    /// constant time.
    pub fn hash_fits(&self, place: &str, secret: &[u8], stored: &str) -> bool {
        self.keys.iter().any(|key| {
            let hash = key.hash(place, secret);
            constant_time::verify_slices_are_equal(hash.as_bytes(), stored.as_bytes()).is_ok()
        })
    }
}

/// Whether a missing key file is created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Create {
    WhenMissing,
    Never,
}

fn write_new(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    Ok(file.sync_all()?)
}

fn encrypt(cipher: &Aes256GcmSiv, place: &str, text: &[u8]) -> anyhow::Result<Vec<u8>> {
    let nonce: [u8; NONCE_BYTES] = rand::random();
    let sealed = cipher
        .encrypt(
            &Nonce::from(nonce),
            Payload {
                msg: text,
                aad: place.as_bytes(),
            },
        )
        .map_err(|_| anyhow!("{place}: cannot be encrypted"))?;
    Ok([nonce.as_slice(), &sealed].concat())
}

fn decrypt(cipher: &Aes256GcmSiv, place: &str, sealed: &[u8]) -> anyhow::Result<Vec<u8>> {
    let (nonce, text) = sealed
        .split_at_checked(NONCE_BYTES)
        .ok_or_else(|| anyhow!("{place}: the ciphertext is cut short"))?;
    let nonce: [u8; NONCE_BYTES] = nonce.try_into().expect("split at the nonce's length");
    cipher
        .decrypt(
            &Nonce::from(nonce),
            Payload {
                msg: text,
                aad: place.as_bytes(),
            },
        )
        .map_err(|_| anyhow!("{place}: the ciphertext or its place was changed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_secret_opens_only_in_its_place_and_with_its_key() {
        let master = MasterKey::from_bytes(&[1; 32]);
        let sealed = master.seal("secrets/a", b"hunter2").unwrap();
        assert_eq!(master.open("secrets/a", &sealed).unwrap(), b"hunter2");
        assert!(master.open("secrets/b", &sealed).is_err());
        assert!(
            MasterKey::from_bytes(&[2; 32])
                .open("secrets/a", &sealed)
                .is_err()
        );
        let mut changed = sealed.clone();
        changed.ciphertext[20] ^= 1;
        assert!(master.open("secrets/a", &changed).is_err());
        assert!(
            !sealed
                .ciphertext
                .windows(7)
                .any(|window| window == b"hunter2")
        );
    }

    #[test]
    fn two_held_keys_open_and_the_chosen_key_seals() {
        let former = MasterKey::from_bytes(&[1; 32]);
        let next = MasterKey::from_bytes(&[2; 32]);
        let both = MasterKey::from_bytes(&[2; 32]).holding(MasterKey::from_bytes(&[1; 32]));
        assert_eq!(both.ids(), [next.id(), former.id()]);
        assert!(!both.seal_by("another") && both.seal("secrets/a", b"").is_err());
        assert!(both.seal_by(former.id()));

        let sealed = both.seal("secrets/a", b"hunter2").unwrap();
        assert_eq!(former.open("secrets/a", &sealed).unwrap(), b"hunter2");
        let (seal, hash) = (both.rows.seal("a row"), both.keyed_hash("a", b"b"));
        assert!(both.rows.is_newest("a row", Some(&seal)));

        assert!(both.seal_by(next.id()));
        let again = both.wrap_again("secrets/a", &sealed).unwrap();
        assert_eq!(again.ciphertext, sealed.ciphertext);
        assert_eq!(next.open("secrets/a", &again).unwrap(), b"hunter2");
        assert!(next.open("secrets/a", &sealed).is_err());
        assert!(both.wrap_again("secrets/b", &sealed).is_err());
        // Seals and hashes of the former key stay valid, and are known as former.
        assert!(both.rows.fits("a row", Some(&seal)));
        assert!(!both.rows.is_newest("a row", Some(&seal)));
        assert!(both.hash_fits("a", b"b", &hash) && !next.hash_fits("a", b"b", &hash));
        assert!(next.rows.fits("a row", Some(&both.rows.seal("a row"))));
    }
}
