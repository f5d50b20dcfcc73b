//! Secrets, and the master keys around the data keys. A rotation lists the secrets of other master
//! keys, and stores the same secrets under the new master key. A secret changed meanwhile keeps the
//! newer value.

use muster_core::ids::ObjectId;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::ipnet::IpNet;

use super::bmc_passwords::Account;
use crate::error::Error;
use crate::sealed::Sealed;

/// A stored secret, with its row.
#[derive(Clone, Debug)]
pub struct WrappedRow<Id> {
    pub id: Id,
    pub sealed: Sealed,
}

/// The number of secrets of a table under one master key.
#[derive(Clone, Debug)]
pub struct WrappedCount {
    pub place: String,
    pub key_id: String,
    pub count: i64,
}

/// Counts all secrets by table and by master key.
pub async fn count_by_key(conn: &mut PgConnection) -> Result<Vec<WrappedCount>, Error> {
    Ok(sqlx::query_as!(
        WrappedCount,
        r#"SELECT place AS "place!", key_id AS "key_id!", count(*) AS "count!" FROM (
               SELECT 'server_keys' AS place, key_id FROM server_keys
               UNION ALL SELECT 'secrets', key_id FROM secrets
               UNION ALL SELECT 'bmc_passwords', key_id FROM bmc_passwords
               UNION ALL SELECT 'bmc_passwords', next_key_id FROM bmc_passwords WHERE next_key_id IS NOT NULL
               UNION ALL SELECT 'idempotency_keys', body -> '$sealed' ->> 'key_id' FROM idempotency_keys WHERE body -> '$sealed' ->> 'key_id' IS NOT NULL
           ) stored GROUP BY 1, 2 ORDER BY 1, 2"#
    )
    .fetch_all(conn)
    .await?)
}

/// The age of one of the server's own keys, and the id of its master key.
#[derive(Clone, Debug)]
pub struct KeyAge {
    pub name: String,
    pub key_id: String,
    pub created_at: jiff_sqlx::Timestamp,
}

/// Lists the server's own keys by name.
pub async fn list_ages(conn: &mut PgConnection) -> Result<Vec<KeyAge>, Error> {
    Ok(sqlx::query_as!(
        KeyAge,
        "SELECT name, key_id, created_at FROM server_keys ORDER BY name"
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the server's own keys outside of a master key.
pub async fn list_server_keys(
    conn: &mut PgConnection,
    newest: &str,
) -> Result<Vec<WrappedRow<String>>, Error> {
    let rows = sqlx::query!(
        "SELECT name, key_id, wrapped_key, ciphertext FROM server_keys WHERE key_id <> $1 ORDER BY name",
        newest
    )
    .fetch_all(conn)
    .await?;
    let rows = rows.into_iter().map(|row| WrappedRow {
        id: row.name,
        sealed: Sealed {
            key_id: row.key_id,
            wrapped_key: row.wrapped_key,
            ciphertext: row.ciphertext,
        },
    });
    Ok(rows.collect())
}

/// Stores the wrapped key of one of the server's own keys. `before` is the wrapped key as read.
pub async fn set_server_key(
    conn: &mut PgConnection,
    before: &WrappedRow<String>,
    key: &Sealed,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE server_keys SET key_id = $3, wrapped_key = $4 WHERE name = $1 AND wrapped_key = $2",
        before.id,
        before.sealed.wrapped_key,
        key.key_id,
        key.wrapped_key,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists at most `limit` secrets of objects outside of a master key.
pub async fn list_secrets(
    conn: &mut PgConnection,
    newest: &str,
    limit: i64,
) -> Result<Vec<WrappedRow<ObjectId>>, Error> {
    let rows = sqlx::query!(
        r#"SELECT object_id AS "object_id: ObjectId", key_id, wrapped_key, ciphertext FROM secrets WHERE key_id <> $1 ORDER BY object_id LIMIT $2"#,
        newest,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let rows = rows.into_iter().map(|row| WrappedRow {
        id: row.object_id,
        sealed: Sealed {
            key_id: row.key_id,
            wrapped_key: row.wrapped_key,
            ciphertext: row.ciphertext,
        },
    });
    Ok(rows.collect())
}

/// Stores the wrapped key of an object's secret, as [`set_server_key`].
pub async fn set_secret(
    conn: &mut PgConnection,
    before: &WrappedRow<ObjectId>,
    key: &Sealed,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE secrets SET key_id = $3, wrapped_key = $4 WHERE object_id = $1 AND wrapped_key = $2",
        before.id as ObjectId,
        before.sealed.wrapped_key,
        key.key_id,
        key.wrapped_key,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists at most `limit` current passwords of BMC accounts outside of a master key.
pub async fn list_passwords(
    conn: &mut PgConnection,
    newest: &str,
    limit: i64,
) -> Result<Vec<WrappedRow<Account>>, Error> {
    let rows = sqlx::query!(
        r#"SELECT address AS "address: IpNet", port, user_name, key_id, wrapped_key, ciphertext
           FROM bmc_passwords WHERE key_id <> $1 ORDER BY address, port, user_name LIMIT $2"#,
        newest,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let rows = rows.into_iter().map(|row| WrappedRow {
        id: Account {
            address: row.address.addr(),
            port: row.port,
            user: row.user_name,
        },
        sealed: Sealed {
            key_id: row.key_id,
            wrapped_key: row.wrapped_key,
            ciphertext: row.ciphertext,
        },
    });
    Ok(rows.collect())
}

/// Stores the wrapped key of a current password, as [`set_server_key`].
pub async fn set_password(
    conn: &mut PgConnection,
    before: &WrappedRow<Account>,
    key: &Sealed,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE bmc_passwords SET key_id = $5, wrapped_key = $6 WHERE address = $1 AND port = $2 AND user_name = $3 AND wrapped_key = $4",
        IpNet::from(before.id.address),
        before.id.port,
        before.id.user,
        before.sealed.wrapped_key,
        key.key_id,
        key.wrapped_key,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists at most `limit` next passwords of BMC accounts outside of a master key.
pub async fn list_next_passwords(
    conn: &mut PgConnection,
    newest: &str,
    limit: i64,
) -> Result<Vec<WrappedRow<Account>>, Error> {
    let rows = sqlx::query!(
        r#"SELECT address AS "address: IpNet", port, user_name, next_key_id AS "key_id!", next_wrapped_key AS "wrapped_key!", next_ciphertext AS "ciphertext!"
           FROM bmc_passwords WHERE next_key_id <> $1 ORDER BY address, port, user_name LIMIT $2"#,
        newest,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let rows = rows.into_iter().map(|row| WrappedRow {
        id: Account {
            address: row.address.addr(),
            port: row.port,
            user: row.user_name,
        },
        sealed: Sealed {
            key_id: row.key_id,
            wrapped_key: row.wrapped_key,
            ciphertext: row.ciphertext,
        },
    });
    Ok(rows.collect())
}

/// Stores the wrapped key of a next password, as [`set_server_key`].
pub async fn set_next_password(
    conn: &mut PgConnection,
    before: &WrappedRow<Account>,
    key: &Sealed,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE bmc_passwords SET next_key_id = $5, next_wrapped_key = $6 WHERE address = $1 AND port = $2 AND user_name = $3 AND next_wrapped_key = $4",
        IpNet::from(before.id.address),
        before.id.port,
        before.id.user,
        before.sealed.wrapped_key,
        key.key_id,
        key.wrapped_key,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A stored answer with a sealed body.
#[derive(Clone, Debug)]
pub struct SealedAnswer {
    pub actor: String,
    pub key: String,
    pub body: Value,
}

/// Lists at most `limit` stored and sealed answers outside of a master key.
pub async fn list_answers(
    conn: &mut PgConnection,
    newest: &str,
    limit: i64,
) -> Result<Vec<SealedAnswer>, Error> {
    Ok(sqlx::query_as!(
        SealedAnswer,
        "SELECT actor, key, body FROM idempotency_keys WHERE body -> '$sealed' ->> 'key_id' <> $1 ORDER BY actor, key LIMIT $2",
        newest,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Stores the body of a stored answer. The bodies of stored answers never change otherwise.
pub async fn set_answer(
    conn: &mut PgConnection,
    answer: &SealedAnswer,
    body: &Value,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE idempotency_keys SET body = $3 WHERE actor = $1 AND key = $2",
        answer.actor,
        answer.key,
        body,
    )
    .execute(conn)
    .await?;
    Ok(())
}
