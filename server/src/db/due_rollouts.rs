//! Rollouts that start by themselves: one revision for a pool, until the start.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{ObjectId, RevisionId};
use sqlx::PgConnection;

use crate::error::Error;

/// A rollout to be started.
#[derive(Clone, Debug)]
pub struct DueRow {
    pub pool: ObjectId,
    pub pool_name: String,
    pub revision: RevisionId,
    /// Number of the revision.
    pub number: i32,
    /// Author of the revision.
    pub actor: String,
    pub created_at: Timestamp,
    /// The last attempt.
    pub tried_at: Option<jiff_sqlx::Timestamp>,
    /// The refusal of the last attempt.
    pub reason_code: Option<String>,
    pub reason: Option<String>,
}

/// Records the rollout of a revision, in place of an earlier revision's.
pub async fn set(
    conn: &mut PgConnection,
    pool: ObjectId,
    revision: RevisionId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO due_rollouts (pool_id, revision_id, created_at) VALUES ($1, $2, $3)
         ON CONFLICT (pool_id) DO UPDATE SET revision_id = $2, created_at = $3, tried_at = NULL, reason_code = NULL, reason = NULL",
        pool as ObjectId,
        revision as RevisionId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes the rollout to be started of a pool. Returns whether there was one.
pub async fn remove(conn: &mut PgConnection, pool: ObjectId) -> Result<bool, Error> {
    let removed = sqlx::query!(
        "DELETE FROM due_rollouts WHERE pool_id = $1",
        pool as ObjectId
    );
    Ok(removed.execute(conn).await?.rows_affected() > 0)
}

/// Lists the rollouts to be started, oldest first.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<DueRow>, Error> {
    Ok(sqlx::query_as!(
        DueRow,
        r#"SELECT d.pool_id AS "pool: ObjectId", pool.name AS pool_name, d.revision_id AS "revision: RevisionId", r.number, r.actor, d.created_at, d.tried_at, d.reason_code, d.reason
           FROM due_rollouts d JOIN objects pool ON pool.id = d.pool_id JOIN pool_revisions r ON r.id = d.revision_id ORDER BY d.created_at, d.pool_id"#
    )
    .fetch_all(conn)
    .await?)
}

/// Returns the rollout to be started of a pool.
pub async fn find(conn: &mut PgConnection, pool: ObjectId) -> Result<Option<DueRow>, Error> {
    Ok(sqlx::query_as!(
        DueRow,
        r#"SELECT d.pool_id AS "pool: ObjectId", pool.name AS pool_name, d.revision_id AS "revision: RevisionId", r.number, r.actor, d.created_at, d.tried_at, d.reason_code, d.reason
           FROM due_rollouts d JOIN objects pool ON pool.id = d.pool_id JOIN pool_revisions r ON r.id = d.revision_id WHERE d.pool_id = $1"#,
        pool as ObjectId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Records a refused attempt.
pub async fn set_refused(
    conn: &mut PgConnection,
    pool: ObjectId,
    code: &str,
    reason: &str,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE due_rollouts SET tried_at = $4, reason_code = $2, reason = $3 WHERE pool_id = $1",
        pool as ObjectId,
        code,
        reason,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}
