//! Emergency sign-in (break glass): a period in which the local administrator may sign in although
//! an identity provider is configured.

use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;

use crate::access::Armed;
use crate::error::Error;

/// Returns the latest armed period, current or over, with its seal.
pub async fn find(conn: &mut PgConnection) -> Result<Option<(Armed, String)>, Error> {
    let row = sqlx::query!(
        r#"SELECT armed_at AS "armed_at: jiff_sqlx::Timestamp", until AS "until: jiff_sqlx::Timestamp", by, reason, seal FROM break_glass"#
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| {
        let (armed_at, until) = (row.armed_at.to_jiff(), row.until.to_jiff());
        (
            Armed {
                armed_at,
                until,
                by: row.by,
                reason: row.reason,
            },
            row.seal,
        )
    }))
}

/// Arms a period, replacing the former one.
pub async fn set(conn: &mut PgConnection, armed: &Armed, seal: &str) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO break_glass (armed_at, until, by, reason, seal) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (single) DO UPDATE SET armed_at = $1, until = $2, by = $3, reason = $4, seal = $5",
        armed.armed_at.to_sqlx() as _,
        armed.until.to_sqlx() as _,
        armed.by,
        armed.reason,
        seal,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Replaces the seal of the present period, unless another period was stored meanwhile.
pub async fn set_seal(conn: &mut PgConnection, before: &str, seal: &str) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE break_glass SET seal = $2 WHERE seal = $1",
        before,
        seal
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Disarms. Returns whether a period was stored.
pub async fn delete(conn: &mut PgConnection) -> Result<bool, Error> {
    Ok(sqlx::query!("DELETE FROM break_glass")
        .execute(conn)
        .await?
        .rows_affected()
        > 0)
}
