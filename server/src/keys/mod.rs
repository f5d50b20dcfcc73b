//! The keys of the server. The master key is stored outside the database and encrypts every secret
//! (envelope encryption). The signing keys are for permits, SSH user certificates, agents'
//! certificates and tokens. A missing or wrong master key fails closed.

pub mod authority; // Certificates of agents
mod marks; // Seals over the events that agents remember
mod rows; // Seals over the rows that decide rights
pub mod ssh; // SSH user certificates of orders
mod tokens; // Stored MACs of tokens

pub use self::marks::MarkKey;
pub use self::rows::RowKey;
pub use self::tokens::{Fit, Forget, TokenKeys, rotate};

use std::path::Path;

use aes_gcm_siv::aead::{Aead as _, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Key, KeyInit as _, Nonce};
use anyhow::{Context as _, anyhow, ensure};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use muster_core::clock::Clock;
use muster_core::values::Digest;
use russh::keys::ssh_key::PrivateKey;
use sqlx::PgPool;

use self::authority::Authority;
use self::ssh::{Grant, SignedKey};
use crate::db;
use crate::sealed::Sealed;

const NONCE_BYTES: usize = 12;

/// The key outside the database: 32 bytes in a file of mode 0600.
pub struct MasterKey {
    cipher: Aes256GcmSiv,
    id: String,
    /// The key for hashes that only this server can compute.
    hash_key: hmac::Key,
    /// The key for the seals over events that agents remember.
    pub marks: MarkKey,
    /// The key for the seals over rows that decide rights.
    pub rows: RowKey,
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

    /// Returns a key held in memory, for tests.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        let id = Digest::of(bytes).hex()[..16].to_owned();
        // Derived from the master key, so that a leak from one use of the key does not help to
        // attack the other.
        let derived = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, bytes),
            b"muster keyed hash v1",
        );
        let hash_key = hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref());
        Self {
            cipher: Aes256GcmSiv::new(&Key::<Aes256GcmSiv>::from(*bytes)),
            id,
            hash_key,
            marks: MarkKey::derive(bytes),
            rows: RowKey::derive(bytes),
        }
    }

    /// Encrypts a secret with a fresh data key, which is wrapped by the master key. `place` (table
    /// and row) is authenticated too, so that a row copied elsewhere cannot be decrypted.
    ///
    /// # Errors
    /// When the cipher refuses the text, for example beyond 64 GiB.
    pub fn seal(&self, place: &str, secret: &[u8]) -> anyhow::Result<Sealed> {
        let data_key: [u8; 32] = rand::random();
        let data = Aes256GcmSiv::new(&Key::<Aes256GcmSiv>::from(data_key));
        Ok(Sealed {
            key_id: self.id.clone(),
            wrapped_key: encrypt(&self.cipher, place, &data_key)?,
            ciphertext: encrypt(&data, place, secret)?,
        })
    }

    /// Decrypts a secret sealed by [`MasterKey::seal`] for the same place.
    ///
    /// # Errors
    /// When the secret was sealed by another key, for another place, or was changed.
    pub fn open(&self, place: &str, sealed: &Sealed) -> anyhow::Result<Vec<u8>> {
        ensure!(
            sealed.key_id == self.id,
            "{place} was sealed by key {}, the server has key {}",
            sealed.key_id,
            self.id
        );
        let data_key: [u8; 32] = decrypt(&self.cipher, place, &sealed.wrapped_key)?
            .try_into()
            .map_err(|_| anyhow!("{place}: the wrapped key has the wrong length"))?;
        decrypt(
            &Aes256GcmSiv::new(&Key::<Aes256GcmSiv>::from(data_key)),
            place,
            &sealed.ciphertext,
        )
    }

    /// Returns a keyed hash of a secret in its place: 32 hex digits. Comparing two hashes shows
    /// only whether the secret has changed.
    pub fn keyed_hash(&self, place: &str, secret: &[u8]) -> String {
        let tag = hmac::sign(&self.hash_key, &[place.as_bytes(), b"\n", secret].concat());
        hex::encode(&tag.as_ref()[..16])
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

/// All keys used by a replica.
pub struct Keys {
    pub master: MasterKey,
    permit: SigningKey,
    user_ca: PrivateKey,
    /// The certificate authority for agents, and for the server certificate presented to agents.
    pub authority: Authority,
    /// The keys for verifying tokens.
    pub tokens: TokenKeys,
}

impl Keys {
    /// Opens the signing keys of this database, and creates them on first use. All replicas use the
    /// same keys, because the first row written wins.
    ///
    /// # Errors
    /// When the database fails or the master key did not seal the stored keys.
    pub async fn load(master: MasterKey, pool: &PgPool, clock: &Clock) -> anyhow::Result<Self> {
        let mut conn = pool.acquire().await?;
        for name in ["permit", "ssh_user_ca"] {
            let sealed = master.seal(&place(name), &rand::random::<[u8; 32]>())?;
            db::keys::insert_if_absent(&mut conn, name, &sealed, clock.now()).await?;
        }
        let authority = master.seal(&place("agent_ca"), Authority::make()?.as_bytes())?;
        db::keys::insert_if_absent(&mut conn, "agent_ca", &authority, clock.now()).await?;
        let authority = master.open(
            &place("agent_ca"),
            &db::keys::get(&mut conn, "agent_ca").await?,
        )?;
        let authority = Authority::open(std::str::from_utf8(&authority)?)?;
        let permit = seed(
            &master,
            &db::keys::get(&mut conn, "permit").await?,
            "permit",
        )?;
        let ca = seed(
            &master,
            &db::keys::get(&mut conn, "ssh_user_ca").await?,
            "ssh_user_ca",
        )?;
        let tokens = TokenKeys::open(&master, &mut conn, clock.now()).await?;
        let pair = russh::keys::ssh_key::private::Ed25519Keypair::from_seed(&ca);
        Ok(Self {
            master,
            permit: SigningKey::from_bytes(&permit),
            user_ca: PrivateKey::from(pair),
            authority,
            tokens,
        })
    }

    /// Returns the key for signing permits.
    pub fn permit(&self) -> &SigningKey {
        &self.permit
    }

    /// Returns the public half of the permit key in the form sent to nodes: 32 bytes in base64.
    pub fn permit_public(&self) -> String {
        STANDARD.encode(self.permit.verifying_key().as_bytes())
    }

    /// Returns the SSH user CA as an OpenSSH public-key line.
    ///
    /// # Errors
    /// When the key cannot be encoded. An Ed25519 key can always be encoded.
    pub fn user_ca_line(&self) -> anyhow::Result<String> {
        let mut public = self.user_ca.public_key().clone();
        public.set_comment("muster-user-ca");
        Ok(public.to_openssh()?)
    }

    /// Returns a new ephemeral key with an SSH user certificate. The private key is discarded with
    /// its job.
    ///
    /// # Errors
    /// When the certificate cannot be built or encoded.
    pub fn certify(&self, grant: &Grant<'_>) -> anyhow::Result<SignedKey> {
        ssh::sign(&self.user_ca, grant)
    }
}

fn place(name: &str) -> String {
    format!("server_keys/{name}")
}

fn seed(master: &MasterKey, sealed: &Sealed, name: &str) -> anyhow::Result<[u8; 32]> {
    let bytes = master.open(&place(name), sealed)?;
    bytes
        .try_into()
        .map_err(|_| anyhow!("the {name} key has the wrong length"))
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
}
