//! Failed logins by password: the delay of each account, and the failures of the present minute.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;

use crate::error::Error;

/// The failures of an account at one source, or at all sources without an earlier login.
#[derive(Clone, Debug)]
pub struct DelayRow {
    /// Empty: all sources without an earlier login of the account.
    pub source: String,
    pub failures: i32,
    pub changed_at: Timestamp,
}

/// The failures of one minute with the same source, account and reason.
#[derive(Clone, Debug)]
pub struct FailureRow {
    pub minute: Timestamp,
    pub source: String,
    /// Empty: a name without a person.
    pub account: String,
    pub reason: String,
    pub failures: i64,
}

/// Returns the row of a login: the row of the source after an earlier login, else the row of all
/// other sources.
pub async fn find_delay(
    conn: &mut PgConnection,
    account: &str,
    source: &str,
) -> Result<Option<DelayRow>, Error> {
    Ok(sqlx::query_as!(
        DelayRow,
        "SELECT source, failures, changed_at FROM sign_in_delays WHERE account = $1 AND source IN ($2, '') ORDER BY source = '' LIMIT 1",
        account,
        source,
    )
    .fetch_optional(conn)
    .await?)
}

/// Counts a failure. Failures before `forgotten` do not count.
pub async fn count_failure(
    conn: &mut PgConnection,
    account: &str,
    source: &str,
    now: Timestamp,
    forgotten: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO sign_in_delays (account, source, failures, changed_at) VALUES ($1, $2, 1, $3)
         ON CONFLICT (account, source) DO UPDATE SET changed_at = excluded.changed_at,
             failures = CASE WHEN sign_in_delays.changed_at < $4 THEN 1 ELSE LEAST(sign_in_delays.failures + 1, 1000) END",
        account,
        source,
        now.to_sqlx() as _,
        forgotten.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a login from a source, and ends the delay there. The `most` latest sources are kept.
pub async fn record_login(
    conn: &mut PgConnection,
    account: &str,
    source: &str,
    now: Timestamp,
    most: i64,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO sign_in_delays (account, source, failures, changed_at) VALUES ($1, $2, 0, $3)
         ON CONFLICT (account, source) DO UPDATE SET failures = 0, changed_at = excluded.changed_at",
        account,
        source,
        now.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "DELETE FROM sign_in_delays WHERE account = $1 AND source <> '' AND source NOT IN (
             SELECT source FROM sign_in_delays WHERE account = $1 AND source <> '' ORDER BY changed_at DESC, source LIMIT $2
         )",
        account,
        most,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the delay of one row.
pub async fn end_delay(conn: &mut PgConnection, account: &str, source: &str) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE sign_in_delays SET failures = 0 WHERE account = $1 AND source = $2",
        account,
        source,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the delays of an account at all sources. `false`: no failure was counted.
pub async fn end_delays(conn: &mut PgConnection, account: &str) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE sign_in_delays SET failures = 0 WHERE account = $1 AND failures > 0",
        account,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Ends the delays of all people with a password.
pub async fn end_delays_of_passwords(conn: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE sign_in_delays SET failures = 0 WHERE failures > 0 AND account IN (SELECT id::text FROM users WHERE password_hash IS NOT NULL)"
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes the old rows: rows of other sources before `forgotten`, and rows of sources before
/// `unused`.
pub async fn delete_old_delays(
    conn: &mut PgConnection,
    forgotten: Timestamp,
    unused: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "DELETE FROM sign_in_delays WHERE changed_at < $2 OR source = '' AND changed_at < $1",
        forgotten.to_sqlx() as _,
        unused.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Adds a failure to the sum of the present minute.
pub async fn add_failure(
    conn: &mut PgConnection,
    source: &str,
    account: &str,
    reason: &str,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO sign_in_failures (minute, source, account, reason, failures) VALUES (date_trunc('minute', $1::timestamptz), $2, $3, $4, 1)
         ON CONFLICT (minute, source, account, reason) DO UPDATE SET failures = sign_in_failures.failures + 1",
        now.to_sqlx() as _,
        source,
        account,
        reason,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes and returns the failures of the past minutes.
pub async fn take_failures(
    conn: &mut PgConnection,
    now: Timestamp,
) -> Result<Vec<FailureRow>, Error> {
    Ok(sqlx::query_as!(
        FailureRow,
        "DELETE FROM sign_in_failures WHERE minute < date_trunc('minute', $1::timestamptz) RETURNING minute, source, account, reason, failures",
        now.to_sqlx() as _,
    )
    .fetch_all(conn)
    .await?)
}
