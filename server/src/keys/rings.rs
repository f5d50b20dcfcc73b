//! The SSH user CA, the permit key and the authority of agents, each with a successor during a
//! rotation. The keys are read at each use, so that every server knows of a rotation at once.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use jiff::Timestamp;
use muster_core::permits::write_further;
use muster_core::values::Digest;
use russh::keys::ssh_key::PrivateKey;
use russh::keys::ssh_key::private::Ed25519Keypair;
use sqlx::PgConnection;

use super::authority::Authority;
use super::master::MasterKey;
use super::seeds::place;
use crate::db;

/// A key of the server with rotations by two acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKey {
    UserCa,
    Permit,
    /// The authority of agents' certificates.
    AgentCa,
}

impl RingKey {
    /// The name of the key, also of its rotation.
    pub fn name(self) -> &'static str {
        match self {
            Self::UserCa => "ssh_user_ca",
            Self::Permit => "permit",
            Self::AgentCa => "agent_ca",
        }
    }

    fn next_name(self) -> &'static str {
        match self {
            Self::UserCa => "ssh_user_ca_next",
            Self::Permit => "permit_next",
            Self::AgentCa => "agent_ca_next",
        }
    }
}

/// A key, and the successor during a rotation. Permits are signed by the present key until the end
/// of the rotation, because every live image trusts the present key. The present authority of
/// agents certifies the server until the end, because every agent trusts the present authority.
pub struct Ring<K> {
    pub current: K,
    pub next: Option<K>,
}

impl Ring<PrivateKey> {
    /// Returns the newest CA.
    pub fn newest(&self) -> &PrivateKey {
        self.next.as_ref().unwrap_or(&self.current)
    }

    /// Returns the OpenSSH public-key lines, the present CA first.
    ///
    /// # Errors
    /// When a key cannot be encoded. An Ed25519 key can always be encoded.
    pub fn lines(&self) -> anyhow::Result<String> {
        let mut lines = ca_line(&self.current)?;
        if let Some(next) = &self.next {
            lines += &format!("\n{}", ca_line(next)?);
        }
        Ok(lines)
    }
}

impl Ring<SigningKey> {
    /// Returns the comment with the new permit key, for the SSH user CAs of a live image.
    pub fn further_line(&self) -> Option<String> {
        self.next
            .as_ref()
            .map(|next| write_further(&encode_public(next)))
    }
}

impl Ring<Authority> {
    fn list(&self) -> impl Iterator<Item = &Authority> {
        std::iter::once(&self.current).chain(&self.next)
    }

    /// Returns the digests of the certificates, the present authority first.
    pub fn digests(&self) -> Vec<Digest> {
        self.list().map(Authority::digest).collect()
    }

    /// Returns the ids, the present authority first.
    pub fn ids(&self) -> Vec<String> {
        self.list().map(Authority::id).collect()
    }

    /// Whether a certificate of the authority with this name is accepted.
    pub fn admits(&self, issuer: Digest) -> bool {
        self.list().any(|authority| authority.subject() == issuer)
    }
}

impl Ring<Vec<u8>> {
    fn open<K>(&self, open: impl Fn(&[u8]) -> anyhow::Result<K>) -> anyhow::Result<Ring<K>> {
        Ok(Ring {
            current: open(&self.current)?,
            next: self.next.as_deref().map(open).transpose()?,
        })
    }
}

/// Returns an SSH user CA as an OpenSSH public-key line.
///
/// # Errors
/// As of [`Ring::lines`].
pub fn ca_line(ca: &PrivateKey) -> anyhow::Result<String> {
    let mut public = ca.public_key().clone();
    public.set_comment("muster-user-ca");
    Ok(public.to_openssh()?)
}

/// Returns the kind and the key of a CA's line, without the comment.
///
/// # Errors
/// As of [`Ring::lines`].
pub fn bare_line(ca: &PrivateKey) -> anyhow::Result<String> {
    let line = ca_line(ca)?;
    let words: Vec<&str> = line.split_whitespace().take(2).collect();
    Ok(words.join(" "))
}

/// Returns the id of an SSH user CA: the first 16 hex digits of the SHA-256 of the line.
///
/// # Errors
/// As of [`Ring::lines`].
pub fn ca_id(ca: &PrivateKey) -> anyhow::Result<String> {
    Ok(short(bare_line(ca)?.as_bytes()))
}

/// Returns the public half of a permit key in the form sent to nodes: 32 bytes in base64.
pub fn encode_public(key: &SigningKey) -> String {
    STANDARD.encode(key.verifying_key().as_bytes())
}

/// Returns the id of a permit key.
pub fn permit_id(key: &SigningKey) -> String {
    short(encode_public(key).as_bytes())
}

fn short(public: &[u8]) -> String {
    Digest::of(public).hex()[..16].to_owned()
}

async fn read(
    master: &MasterKey,
    conn: &mut PgConnection,
    key: RingKey,
) -> anyhow::Result<Ring<Vec<u8>>> {
    // The successor first: an end between the two reads shows the new key twice.
    let next = db::keys::find(conn, key.next_name()).await?;
    let current = db::keys::get(conn, key.name()).await?;
    let open = |sealed| master.open(&place(key.next_name()), &sealed);
    Ok(Ring {
        current: master.open(&place(key.name()), &current)?,
        next: next.map(open).transpose()?,
    })
}

fn seed(bytes: &[u8]) -> anyhow::Result<[u8; 32]> {
    <[u8; 32]>::try_from(bytes).context("a key has the wrong length")
}

/// Opens the SSH user CAs.
///
/// # Errors
/// When the database fails, or the master key did not seal the keys.
pub async fn open_user_cas(
    master: &MasterKey,
    conn: &mut PgConnection,
) -> anyhow::Result<Ring<PrivateKey>> {
    let ring = read(master, conn, RingKey::UserCa).await?;
    ring.open(|bytes| Ok(PrivateKey::from(Ed25519Keypair::from_seed(&seed(bytes)?))))
}

/// Opens the permit keys.
///
/// # Errors
/// As of [`open_user_cas`].
pub async fn open_permits(
    master: &MasterKey,
    conn: &mut PgConnection,
) -> anyhow::Result<Ring<SigningKey>> {
    let ring = read(master, conn, RingKey::Permit).await?;
    ring.open(|bytes| Ok(SigningKey::from_bytes(&seed(bytes)?)))
}

/// Opens the authorities of agents' certificates.
///
/// # Errors
/// As of [`open_user_cas`].
pub async fn open_authorities(
    master: &MasterKey,
    conn: &mut PgConnection,
) -> anyhow::Result<Ring<Authority>> {
    let ring = read(master, conn, RingKey::AgentCa).await?;
    let ring = ring.open(|bytes| Authority::open(std::str::from_utf8(bytes)?))?;
    let Ring { current, next } = ring;
    // A key read twice is a single key.
    let next = next.filter(|next| next.digest() != current.digest());
    Ok(Ring { current, next })
}

/// The ids of a key and its successor.
#[derive(Clone, Debug)]
pub struct RingIds {
    pub former: String,
    pub next: String,
}

/// Makes and stores a successor. Returns the ids.
///
/// # Errors
/// As of [`open_user_cas`].
pub async fn make_next(
    master: &MasterKey,
    conn: &mut PgConnection,
    key: RingKey,
    now: Timestamp,
) -> anyhow::Result<RingIds> {
    let made = match key {
        RingKey::UserCa | RingKey::Permit => rand::random::<[u8; 32]>().to_vec(),
        RingKey::AgentCa => Authority::make_next()?.into_bytes(),
    };
    let sealed = master.seal(&place(key.next_name()), &made)?;
    db::keys::set(conn, key.next_name(), &sealed, now).await?;
    let missing = "the new key is missing";
    match key {
        RingKey::UserCa => {
            let ring = open_user_cas(master, conn).await?;
            Ok(RingIds {
                former: ca_id(&ring.current)?,
                next: ca_id(&ring.next.context(missing)?)?,
            })
        }
        RingKey::Permit => {
            let ring = open_permits(master, conn).await?;
            Ok(RingIds {
                former: permit_id(&ring.current),
                next: permit_id(&ring.next.context(missing)?),
            })
        }
        RingKey::AgentCa => {
            let ring = open_authorities(master, conn).await?;
            Ok(RingIds {
                former: ring.current.id(),
                next: ring.next.context(missing)?.id(),
            })
        }
    }
}

/// Puts the successor in the place of the key.
///
/// # Errors
/// As of [`open_user_cas`], or without a successor.
pub async fn promote_next(
    master: &MasterKey,
    conn: &mut PgConnection,
    key: RingKey,
    now: Timestamp,
) -> anyhow::Result<()> {
    let ring = read(master, conn, key).await?;
    let next = ring.next.context("the new key is missing")?;
    let sealed = master.seal(&place(key.name()), &next)?;
    db::keys::set(conn, key.name(), &sealed, now).await?;
    Ok(db::keys::remove(conn, key.next_name()).await?)
}
