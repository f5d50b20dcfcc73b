//! The server's own sealed keys, and the sealed secrets of credentials.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::ObjectId;
use sqlx::PgConnection;

use crate::error::Error;
use crate::sealed::Sealed;

/// Stores a key, unless another replica has already stored one.
pub async fn insert_if_absent(
    conn: &mut PgConnection,
    name: &str,
    key: &Sealed,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO server_keys (name, key_id, wrapped_key, ciphertext, created_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (name) DO NOTHING",
        name,
        key.key_id,
        key.wrapped_key,
        key.ciphertext,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns a key.
///
/// # Errors
/// When the key does not exist.
pub async fn get(conn: &mut PgConnection, name: &str) -> Result<Sealed, Error> {
    Ok(sqlx::query_as!(
        Sealed,
        "SELECT key_id, wrapped_key, ciphertext FROM server_keys WHERE name = $1",
        name
    )
    .fetch_one(conn)
    .await?)
}

/// Returns a key, if present.
pub async fn find(conn: &mut PgConnection, name: &str) -> Result<Option<Sealed>, Error> {
    Ok(sqlx::query_as!(
        Sealed,
        "SELECT key_id, wrapped_key, ciphertext FROM server_keys WHERE name = $1",
        name
    )
    .fetch_optional(conn)
    .await?)
}

/// Stores or replaces a key.
pub async fn set(
    conn: &mut PgConnection,
    name: &str,
    key: &Sealed,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO server_keys (name, key_id, wrapped_key, ciphertext, created_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (name) DO UPDATE SET key_id = $2, wrapped_key = $3, ciphertext = $4, created_at = $5",
        name,
        key.key_id,
        key.wrapped_key,
        key.ciphertext,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes a key.
pub async fn remove(conn: &mut PgConnection, name: &str) -> Result<(), Error> {
    sqlx::query!("DELETE FROM server_keys WHERE name = $1", name)
        .execute(conn)
        .await?;
    Ok(())
}

/// Stores or replaces the secret of a credential.
pub async fn set_secret(
    conn: &mut PgConnection,
    object: ObjectId,
    secret: &Sealed,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO secrets (object_id, key_id, wrapped_key, ciphertext) VALUES ($1, $2, $3, $4)
         ON CONFLICT (object_id) DO UPDATE SET key_id = $2, wrapped_key = $3, ciphertext = $4",
        object as ObjectId,
        secret.key_id,
        secret.wrapped_key,
        secret.ciphertext,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the sealed secret of a credential, if any.
pub async fn find_secret(
    conn: &mut PgConnection,
    object: ObjectId,
) -> Result<Option<Sealed>, Error> {
    Ok(sqlx::query_as!(
        Sealed,
        "SELECT key_id, wrapped_key, ciphertext FROM secrets WHERE object_id = $1",
        object as ObjectId
    )
    .fetch_optional(conn)
    .await?)
}

/// Removes the sealed secret of an object.
pub async fn remove_secret(conn: &mut PgConnection, object: ObjectId) -> Result<(), Error> {
    sqlx::query!(
        "DELETE FROM secrets WHERE object_id = $1",
        object as ObjectId
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// An object whose stored document may show the secret.
#[derive(Clone, Debug)]
pub struct ReadableSecret {
    pub kind: String,
    pub name: String,
}

/// Lists objects of kinds with a secret whose stored document is no object, or has the secret in
/// the clear. At most 1000.
pub async fn list_readable_secrets(conn: &mut PgConnection) -> Result<Vec<ReadableSecret>, Error> {
    Ok(sqlx::query_as!(
        ReadableSecret,
        "SELECT kind, name FROM objects
         WHERE kind IN ('credential', 'webhook', 'monitor') AND (jsonb_typeof(spec) <> 'object' OR coalesce(spec -> 'secret', 'null') <> 'null')
         ORDER BY kind, name LIMIT 1000"
    )
    .fetch_all(conn)
    .await?)
}
