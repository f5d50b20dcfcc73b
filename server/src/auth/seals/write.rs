//! Seals a row after a write, in the transaction of the write.

use anyhow::anyhow;
use muster_core::ids::{ObjectId, TokenId, UserId};
use sqlx::PgConnection;

use super::text;
use crate::db;
use crate::db::row_seals::TokenSeals;
use crate::error::Error;
use crate::keys::MasterKey;

/// Seals a token just written.
///
/// # Errors
///
/// When the token is missing, or the database fails.
pub async fn seal_token(
    conn: &mut PgConnection,
    master: &MasterKey,
    id: TokenId,
) -> Result<(), Error> {
    let missing = || Error::internal(anyhow!("the token {id} is missing"));
    let row = db::tokens::find(conn, id).await?.ok_or_else(missing)?;
    let (seal, plain) = (
        text::seal_token(master, &row),
        text::seal_plain(master, &row),
    );
    let seals = TokenSeals {
        before: row.seal.as_deref(),
        seal: &seal,
        plain: plain.as_deref(),
    };
    db::row_seals::set_token(conn, id, seals).await.map(drop)
}

/// Seals a role binding just written. The mark of lost verbs stays only under a valid seal: a write
/// keeps the mark of an equal spec, so the former seal covers the present row.
///
/// # Errors
///
/// When the binding is missing, or the database fails.
pub async fn seal_binding(
    conn: &mut PgConnection,
    master: &MasterKey,
    id: ObjectId,
) -> Result<(), Error> {
    let missing = || Error::internal(anyhow!("the role binding {id} is missing"));
    let mut row = db::role_bindings::find(conn, id)
        .await?
        .ok_or_else(missing)?;
    if row.keeps_lost_verbs && !text::binding_fits(master, &row) {
        db::role_bindings::drop_lost_verbs(conn, id).await?;
        row.keeps_lost_verbs = false;
    }
    let seal = text::seal_binding(master, &row);
    db::role_bindings::set_seal(conn, id, row.seal.as_deref(), &seal)
        .await
        .map(drop)
}

/// Seals a person just written. The caller has checked the seal of the row before the write.
/// Otherwise the next change by the server would seal a change made by hand.
///
/// # Errors
///
/// When the person is missing, or the database fails.
pub async fn seal_user(
    conn: &mut PgConnection,
    master: &MasterKey,
    id: UserId,
) -> Result<(), Error> {
    let missing = || Error::internal(anyhow!("the person {id} is missing"));
    let row = db::users::find_for_update(conn, id)
        .await?
        .ok_or_else(missing)?;
    let seal = text::seal_user(master, &row);
    db::row_seals::set_user(conn, id, row.seal.as_deref(), &seal)
        .await
        .map(drop)
}

/// Locks a person, and returns whether the seal is valid. For the check before a write.
///
/// # Errors
///
/// When the database fails.
pub async fn is_sealed(
    conn: &mut PgConnection,
    master: &MasterKey,
    id: UserId,
) -> Result<bool, Error> {
    let row = db::users::find_for_update(conn, id).await?;
    Ok(row.is_some_and(|row| text::user_fits(master, &row)))
}
