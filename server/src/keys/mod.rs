//! The keys of the server. The master key is stored outside the database and encrypts every secret
//! (envelope encryption). The signing keys are for permits, SSH user certificates, agents'
//! certificates and tokens. A missing or wrong master key fails closed.

pub mod authorities; // The authorities held by a running server
pub mod authority; // Certificates of agents
mod marks; // Seals over the events that agents remember
mod master; // The master key, outside of the database
pub mod rings; // Keys of the database with their successors
mod rows; // Seals over the rows that decide rights
mod seeds; // The server's own keys as stored
pub mod ssh; // SSH user certificates of orders
mod tokens; // Stored MACs of tokens

pub use self::marks::MarkKey;
pub use self::master::{Create, MasterKey};
pub use self::rings::Ring;
pub use self::rows::RowKey;
pub use self::seeds::place;
pub use self::tokens::{Fit, Forget, TokenKeys, rotate};

use anyhow::{anyhow, ensure};
use ed25519_dalek::SigningKey;
use jiff::Timestamp;
use muster_core::clock::Clock;
use russh::keys::ssh_key::PrivateKey;
use sqlx::{PgConnection, PgPool};

use self::authorities::Authorities;
use self::authority::Authority;
use self::seeds::seed;
use crate::db;

/// All keys used by a replica.
pub struct Keys {
    pub master: MasterKey,
    /// The certificate authorities for agents, and for the server certificate presented to agents.
    pub authorities: Authorities,
    /// The keys for verifying tokens.
    pub tokens: TokenKeys,
}

impl Keys {
    /// Opens the signing keys of this database, and creates them on first use. All replicas use the
    /// same keys, because the first row written wins.
    ///
    /// # Errors
    /// When the database fails or the master key did not seal the stored keys.
    pub async fn load(mut master: MasterKey, pool: &PgPool, clock: &Clock) -> anyhow::Result<Self> {
        let mut conn = pool.acquire().await?;
        follow_master(&master, &mut conn).await?;
        master.marks = open_marks(&master, &mut conn).await?;
        for name in ["permit", "ssh_user_ca"] {
            let sealed = master.seal(&place(name), &rand::random::<[u8; 32]>())?;
            db::keys::insert_if_absent(&mut conn, name, &sealed, clock.now()).await?;
        }
        let authority = master.seal(&place("agent_ca"), Authority::make()?.as_bytes())?;
        db::keys::insert_if_absent(&mut conn, "agent_ca", &authority, clock.now()).await?;
        let authorities = rings::open_authorities(&master, &mut conn).await?;
        rings::open_user_cas(&master, &mut conn).await?;
        rings::open_permits(&master, &mut conn).await?;
        let tokens = TokenKeys::open(&master, &mut conn, clock.now()).await?;
        Ok(Self {
            master,
            authorities: Authorities::new(authorities),
            tokens,
        })
    }

    /// Opens the SSH user CAs.
    ///
    /// # Errors
    /// When the database fails, or the master key did not seal the keys.
    pub async fn open_user_cas(&self, conn: &mut PgConnection) -> anyhow::Result<Ring<PrivateKey>> {
        rings::open_user_cas(&self.master, conn).await
    }

    /// Opens the permit keys.
    ///
    /// # Errors
    /// As of [`Keys::open_user_cas`].
    pub async fn open_permits(&self, conn: &mut PgConnection) -> anyhow::Result<Ring<SigningKey>> {
        rings::open_permits(&self.master, conn).await
    }

    /// Opens the authorities of agents' certificates.
    ///
    /// # Errors
    /// As of [`Keys::open_user_cas`].
    pub async fn open_authorities(
        &self,
        conn: &mut PgConnection,
    ) -> anyhow::Result<Ring<Authority>> {
        rings::open_authorities(&self.master, conn).await
    }
}

/// The name of a rotation of the master key.
pub const MASTER: &str = "master";

/// The key of the seals over events that agents remember, stored at the first rotation.
const MARKS: &str = "mark_seal";

/// Seals by the master key that the database names: the new key of a rotation, or the key of the
/// server's own keys. A rotation changes the key for all servers at once.
///
/// # Errors
/// When the database fails, the key is not held, or a rotation needs another key too.
pub async fn follow_master(master: &MasterKey, conn: &mut PgConnection) -> anyhow::Result<()> {
    if let Some(rotation) = db::key_rotations::find(conn, MASTER).await? {
        // A process from before the begin may have stored a key under the former key since.
        master.seal_by(&rotation.next);
        for id in [&rotation.former, &rotation.next] {
            ensure!(
                master.holds(id),
                "the master key is rotated from {} to {}, and the server has key {}: name both files, with --key-file and --former-key-file, until `muster admin rotate-master --finish`",
                rotation.former,
                rotation.next,
                master.ids().join(" and ")
            );
        }
        return Ok(());
    }
    if let Some(sealed) = db::keys::find(conn, "permit").await? {
        ensure!(
            master.seal_by(&sealed.key_id),
            "{} was sealed by key {}, the server has key {}: name the file of that key with --key-file, and during a rotation both files, with --key-file and --former-key-file",
            place("permit"),
            sealed.key_id,
            master.ids().join(" and ")
        );
    }
    Ok(())
}

async fn open_marks(master: &MasterKey, conn: &mut PgConnection) -> anyhow::Result<MarkKey> {
    let bytes = match db::keys::find(conn, MARKS).await? {
        Some(sealed) => seed(master, &sealed, MARKS)?,
        None => find_derived(master, master.id())?,
    };
    Ok(MarkKey::new(&bytes))
}

fn find_derived(master: &MasterKey, id: &str) -> anyhow::Result<[u8; 32]> {
    let found = master.derived_mark(id);
    found.ok_or_else(|| anyhow!("the master key {id} is not held"))
}

/// Stores the key of the marks, which the former master key derives, unless a rotation before has
/// stored the key.
///
/// # Errors
/// When the database fails, or the former key is not held.
pub async fn keep_marks(
    master: &MasterKey,
    conn: &mut PgConnection,
    former: &str,
    now: Timestamp,
) -> anyhow::Result<()> {
    let bytes = find_derived(master, former)?;
    let sealed = master.seal(&place(MARKS), &bytes)?;
    Ok(db::keys::insert_if_absent(conn, MARKS, &sealed, now).await?)
}
