//! Seals rows again after a rotation of the master key. Each row with a valid seal of a former key
//! gets a seal of the key that seals. A row without a valid seal stays as it is.

use jiff::Timestamp;
use muster_core::ids::{ObjectId, TokenId, UserId};
use sqlx::PgPool;
use uuid::Uuid;

use super::text::{self, SessionText};
use super::window;
use crate::auth::break_glass;
use crate::db;
use crate::db::row_seals::TokenSeals;
use crate::error::Error;
use crate::keys::MasterKey;

/// Seals every row of a former key, a page in each transaction. Returns the number of sealed rows.
/// After a crash, a repeated call continues.
///
/// # Errors
///
/// When the database fails.
pub async fn seal_again(pool: &PgPool, master: &MasterKey, now: Timestamp) -> Result<u64, Error> {
    let sealed = seal_tokens(pool, master, now).await?
        + seal_people(pool, master).await?
        + seal_bindings(pool, master).await?
        + seal_sessions(pool, master, now).await?;
    let mut tx = pool.begin().await?;
    window::seal_again(&mut tx, master).await?;
    break_glass::seal_again(&mut tx, master).await?;
    tx.commit().await?;
    Ok(sealed)
}

async fn seal_tokens(pool: &PgPool, master: &MasterKey, now: Timestamp) -> Result<u64, Error> {
    let (mut sealed, mut after) = (0, TokenId(Uuid::nil()));
    loop {
        let mut tx = pool.begin().await?;
        let rows = db::row_seals::list_tokens(&mut tx, after, now).await?;
        let Some(last) = rows.last() else {
            return Ok(sealed);
        };
        after = last.id;
        for row in rows
            .iter()
            .filter(|row| text::has_former_token(master, row))
        {
            let (seal, plain) = (text::seal_token(master, row), text::seal_plain(master, row));
            let seals = TokenSeals {
                before: row.seal.as_deref(),
                seal: &seal,
                plain: plain.as_deref(),
            };
            sealed += u64::from(db::row_seals::set_token(&mut tx, row.id, seals).await?);
        }
        tx.commit().await?;
    }
}

async fn seal_people(pool: &PgPool, master: &MasterKey) -> Result<u64, Error> {
    let (mut sealed, mut after) = (0, UserId(Uuid::nil()));
    loop {
        let mut tx = pool.begin().await?;
        let rows = db::row_seals::list_users(&mut tx, after).await?;
        let Some(last) = rows.last() else {
            return Ok(sealed);
        };
        after = last.id;
        for row in rows.iter().filter(|row| text::has_former_user(master, row)) {
            let (before, seal) = (row.seal.as_deref(), text::seal_user(master, row));
            sealed += u64::from(db::row_seals::set_user(&mut tx, row.id, before, &seal).await?);
        }
        tx.commit().await?;
    }
}

async fn seal_bindings(pool: &PgPool, master: &MasterKey) -> Result<u64, Error> {
    let (mut sealed, mut after) = (0, ObjectId(Uuid::nil()));
    loop {
        let mut tx = pool.begin().await?;
        let rows = db::role_bindings::list(&mut tx, after).await?;
        let Some(last) = rows.last() else {
            return Ok(sealed);
        };
        after = last.id;
        for row in rows
            .iter()
            .filter(|row| text::has_former_binding(master, row))
        {
            let (before, seal) = (row.seal.as_deref(), text::seal_binding(master, row));
            sealed += u64::from(db::role_bindings::set_seal(&mut tx, row.id, before, &seal).await?);
        }
        tx.commit().await?;
    }
}

async fn seal_sessions(pool: &PgPool, master: &MasterKey, now: Timestamp) -> Result<u64, Error> {
    let (mut sealed, mut after) = (0, Vec::new());
    loop {
        let mut tx = pool.begin().await?;
        let rows = db::row_seals::list_sessions(&mut tx, &after, now).await?;
        let Some(last) = rows.last() else {
            return Ok(sealed);
        };
        after.clone_from(&last.token_hash);
        for row in &rows {
            let members = SessionText {
                hash: &row.token_hash,
                user: row.user_id,
                expires_at: row.expires_at,
            };
            if text::has_former_session(master, &members, row.seal.as_deref()) {
                let seal = text::seal_session(master, &row.token_hash, row.user_id, row.expires_at);
                let set = db::row_seals::set_session(&mut tx, &row.token_hash, &seal).await?;
                sealed += u64::from(set);
            }
        }
        tx.commit().await?;
    }
}
