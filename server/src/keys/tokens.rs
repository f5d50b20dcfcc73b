//! Stored MACs of API tokens: an HMAC with a key sealed in the database, like the other keys of the
//! server. Without the master key, the token table is not enough to check a guessed token or to
//! compute a valid MAC. Exceptions are rows with a plain SHA-256 (without `key_id`), until their
//! next use.

use std::sync::{PoisonError, RwLock};

use anyhow::ensure;
use aws_lc_rs::{constant_time, hmac};
use jiff::Timestamp;
use muster_core::values::Digest;
use sqlx::PgConnection;

use super::master::MasterKey;
use super::seeds::{place, seed};
use crate::db;
use crate::sealed::TokenMac;

/// Name of the key for the MACs of new tokens.
const CURRENT: &str = "token_mac";
/// Name of the key used before the last rotation. MACs of the former key are valid until the
/// token's next use, and are then replaced.
const BEFORE: &str = "token_mac_before";

/// Result of comparing a stored MAC with a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The MAC belongs to the token.
    Fits,
    /// The MAC belongs to the token but was made without a key or with the former key. The
    /// contained MAC must be stored instead.
    Renew(TokenMac),
    /// The MAC belongs to another token.
    Differs,
    /// No key with the stored id is loaded.
    Unknown,
}

struct TokenKey {
    id: String,
    key: hmac::Key,
}

impl TokenKey {
    fn new(bytes: &[u8; 32]) -> Self {
        Self {
            id: Digest::of(bytes).hex()[..16].to_owned(),
            key: hmac::Key::new(hmac::HMAC_SHA256, bytes),
        }
    }

    fn mac(&self, token: &str) -> [u8; 32] {
        let tag = hmac::sign(&self.key, &[b"muster token\n", token.as_bytes()].concat());
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

/// The keys for verifying tokens, the current key first.
pub struct TokenKeys(RwLock<Vec<TokenKey>>);

impl TokenKeys {
    pub(super) async fn open(
        master: &MasterKey,
        conn: &mut PgConnection,
        now: Timestamp,
    ) -> anyhow::Result<Self> {
        let fresh = master.seal(&place(CURRENT), &rand::random::<[u8; 32]>())?;
        db::keys::insert_if_absent(conn, CURRENT, &fresh, now).await?;
        Ok(Self(RwLock::new(load(master, conn).await?)))
    }

    /// Loads the keys again, after another process of the server changed them.
    ///
    /// # Errors
    /// When the database fails, or the master key did not seal the stored keys.
    pub async fn reload(&self, master: &MasterKey, conn: &mut PgConnection) -> anyhow::Result<()> {
        let keys = load(master, conn).await?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(())
    }

    /// Returns the MAC to be stored for a token.
    ///
    /// # Panics
    /// Never, because a current key always exists.
    pub fn mac(&self, token: &str) -> TokenMac {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let current = keys.first().expect("there is a current key");
        TokenMac {
            key_id: Some(current.id.clone()),
            mac: current.mac(token),
        }
    }

    /// Compares a stored MAC with a token in constant time.
    pub fn fit(&self, stored: &[u8], key_id: Option<&str>, token: &str) -> Fit {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (mac, renew) = match key_id {
            None => (TokenMac::plain(token).mac, true),
            Some(id) => match keys.iter().position(|key| key.id == id) {
                Some(at) => (keys[at].mac(token), at > 0),
                None => return Fit::Unknown,
            },
        };
        drop(keys);
        match (
            constant_time::verify_slices_are_equal(stored, &mac).is_ok(),
            renew,
        ) {
            (false, _) => Fit::Differs,
            (true, false) => Fit::Fits,
            (true, true) => Fit::Renew(self.mac(token)),
        }
    }
}

async fn load(master: &MasterKey, conn: &mut PgConnection) -> anyhow::Result<Vec<TokenKey>> {
    let mut keys = vec![TokenKey::new(&seed(
        master,
        &db::keys::get(conn, CURRENT).await?,
        CURRENT,
    )?)];
    if let Some(before) = db::keys::find(conn, BEFORE).await? {
        keys.push(TokenKey::new(&seed(master, &before, BEFORE)?));
    }
    Ok(keys)
}

/// Replaces the current key. Tokens of the former key move to the new key on their next use. Tokens
/// of older keys are refused from now on; if any are valid, `Forget::Yes` is required. Returns the
/// number of such tokens.
///
/// # Errors
/// When the database fails, the master key did not seal the keys, or valid tokens would be refused
/// without `Forget::Yes`.
pub async fn rotate(
    master: &MasterKey,
    conn: &mut PgConnection,
    forget: Forget,
    now: Timestamp,
) -> anyhow::Result<i64> {
    let keys = load(master, conn).await?;
    let current = seed(master, &db::keys::get(conn, CURRENT).await?, CURRENT)?;
    let left = db::tokens::count_of_other_keys(conn, &keys[0].id, now).await?;
    ensure!(
        left == 0 || forget == Forget::Yes,
        "{left} tokens were not used since the last rotation and would be refused: use them, revoke them, or say --forget"
    );
    db::keys::set(conn, BEFORE, &master.seal(&place(BEFORE), &current)?, now).await?;
    db::keys::set(
        conn,
        CURRENT,
        &master.seal(&place(CURRENT), &rand::random::<[u8; 32]>())?,
        now,
    )
    .await?;
    Ok(left)
}

/// Whether valid tokens not used since the last rotation may be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[[u8; 32]]) -> TokenKeys {
        TokenKeys(RwLock::new(bytes.iter().map(TokenKey::new).collect()))
    }

    #[test]
    fn what_is_stored_fits_its_token_by_its_key_alone() {
        let (own, other) = (keys(&[[1; 32]]), keys(&[[2; 32]]));
        let stored = own.mac("mst_a");
        let id = stored.key_id.as_deref();
        assert_eq!(own.fit(&stored.mac, id, "mst_a"), Fit::Fits);
        assert_eq!(own.fit(&stored.mac, id, "mst_b"), Fit::Differs);
        assert_eq!(other.fit(&stored.mac, id, "mst_a"), Fit::Unknown);
        // A MAC stored with the other key's id does not verify.
        let named = other.mac("x").key_id;
        assert_eq!(
            other.fit(&stored.mac, named.as_deref(), "mst_a"),
            Fit::Differs
        );
        // A MAC stored without a key id does not verify as a plain SHA-256.
        assert_ne!(stored.mac, TokenMac::plain("mst_a").mac);
        assert_eq!(own.fit(&stored.mac, None, "mst_a"), Fit::Differs);
    }

    #[test]
    fn what_was_stored_before_goes_over_to_the_current_key() {
        let (former, both) = (keys(&[[1; 32]]), keys(&[[2; 32], [1; 32]]));
        let stored = former.mac("mst_a");
        let Fit::Renew(renewed) = both.fit(&stored.mac, stored.key_id.as_deref(), "mst_a") else {
            panic!()
        };
        assert_eq!(renewed, both.mac("mst_a"));
        assert_eq!(
            both.fit(&renewed.mac, renewed.key_id.as_deref(), "mst_a"),
            Fit::Fits
        );
        let plain = TokenMac::plain("mst_a");
        assert_eq!(
            both.fit(&plain.mac, None, "mst_a"),
            Fit::Renew(both.mac("mst_a"))
        );
        assert_eq!(both.fit(&plain.mac, None, "mst_b"), Fit::Differs);
    }
}
