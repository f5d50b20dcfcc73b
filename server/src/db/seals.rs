//! Seals of the history. Each seal is written once, after the covered events.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::audit::{Entry, Seal};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A seal as stored. [`crate::audit`] verifies the content.
#[derive(Clone, Debug)]
pub struct SealRow {
    pub number: i64,
    pub previous: Vec<u8>,
    pub hash: Vec<u8>,
    pub sealed_at: Timestamp,
    pub seqs: Vec<i64>,
    pub digests: Vec<u8>,
}

impl SealRow {
    /// Returns the seal with the covered events. `None`: the columns are inconsistent.
    pub fn seal(&self) -> Option<Seal> {
        let digests: Option<Vec<[u8; 32]>> = self
            .digests
            .chunks(32)
            .map(|digest| digest.try_into().ok())
            .collect();
        let digests = digests.filter(|digests| digests.len() == self.seqs.len())?;
        Some(Seal {
            number: self.number,
            previous: self.previous.as_slice().try_into().ok()?,
            sealed_at: self.sealed_at,
            events: self.seqs.iter().copied().zip(digests).collect(),
        })
    }
}

/// Takes the lock for sealing until the transaction ends. `false`: another replica is sealing.
pub async fn try_lock(conn: &mut PgConnection) -> Result<bool, Error> {
    // The key must be below 2^62: keys above record how far the history is complete.
    Ok(
        sqlx::query_scalar!(r#"SELECT pg_try_advisory_xact_lock(727371652) AS "mine!""#)
            .fetch_one(conn)
            .await?,
    )
}

/// Gives the transaction an unchanging view of the database, for a check beside writers and
/// removals. The first statement of the transaction.
pub async fn read_snapshot(conn: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .execute(conn)
        .await?;
    Ok(())
}

/// Returns the newest seal.
pub async fn latest(conn: &mut PgConnection) -> Result<Option<SealRow>, Error> {
    Ok(sqlx::query_as!(
        SealRow,
        "SELECT number, previous, hash, sealed_at, seqs, digests FROM event_seals ORDER BY number DESC LIMIT 1"
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists seals after a number, in order.
pub async fn list(conn: &mut PgConnection, after: i64, limit: i64) -> Result<Vec<SealRow>, Error> {
    Ok(sqlx::query_as!(
        SealRow,
        "SELECT number, previous, hash, sealed_at, seqs, digests FROM event_seals WHERE number > $1 ORDER BY number LIMIT $2",
        after,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Inserts a seal. A conflict on the number or the previous hash is a bug.
pub async fn insert(conn: &mut PgConnection, seal: &Seal) -> Result<(), Error> {
    let (seqs, digests): (Vec<i64>, Vec<[u8; 32]>) = seal.events.iter().copied().unzip();
    sqlx::query!(
        "INSERT INTO event_seals (number, previous, hash, sealed_at, seqs, digests) VALUES ($1, $2, $3, $4, $5, $6)",
        seal.number,
        &seal.previous,
        &seal.hash(),
        seal.sealed_at.to_sqlx() as _,
        &seqs,
        digests.concat(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// An event with every member included in its digest, also as exported to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryRow {
    pub seq: i64,
    pub id: Uuid,
    pub at: Timestamp,
    pub actor: String,
    pub kind: String,
    pub node_id: Option<Uuid>,
    pub object_id: Option<Uuid>,
    pub operation_id: Option<Uuid>,
    pub request_id: Option<String>,
    pub summary: String,
    /// JSON text as printed by Postgres.
    pub detail: String,
}

impl EntryRow {
    /// Returns the digest covered by a seal.
    pub fn digest(&self) -> [u8; 32] {
        let entry = Entry {
            seq: self.seq,
            id: self.id,
            at: self.at,
            actor: &self.actor,
            kind: &self.kind,
            node: self.node_id,
            object: self.object_id,
            operation: self.operation_id,
            request_id: self.request_id.as_deref(),
            summary: &self.summary,
            detail: &self.detail,
        };
        entry.digest()
    }
}

/// Returns the number and digest of each event after `after` and up to `up_to`, in order.
pub async fn list_digests(
    conn: &mut PgConnection,
    after: i64,
    up_to: i64,
    limit: i64,
) -> Result<Vec<(i64, [u8; 32])>, Error> {
    let rows = list_entries(conn, after, up_to, limit).await?;
    Ok(rows.iter().map(|row| (row.seq, row.digest())).collect())
}

/// Lists the events after `after` and up to `up_to`, in order.
pub async fn list_entries(
    conn: &mut PgConnection,
    after: i64,
    up_to: i64,
    limit: i64,
) -> Result<Vec<EntryRow>, Error> {
    Ok(sqlx::query_as!(
        EntryRow,
        r#"SELECT seq, id, at, actor, kind, node_id, object_id, operation_id, request_id, summary, detail::text AS "detail!"
           FROM events WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3"#,
        after,
        up_to,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Counts the events after a number, and returns the time of the first.
pub async fn count_after(
    conn: &mut PgConnection,
    after: i64,
) -> Result<(i64, Option<Timestamp>), Error> {
    let row = sqlx::query!(
        r#"SELECT count(*) AS "count!", min(at) AS "first: jiff_sqlx::Timestamp" FROM events WHERE seq > $1"#,
        after
    )
    .fetch_one(conn)
    .await?;
    Ok((row.count, row.first.map(|at| at.to_jiff())))
}

/// Returns whether the events from `first` to `last`, both included, contain another kind than
/// `kind`.
pub async fn holds_others(
    conn: &mut PgConnection,
    first: i64,
    last: i64,
    kind: &str,
) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM events WHERE seq BETWEEN $1 AND $2 AND kind <> $3) AS "others!""#,
        first,
        last,
        kind,
    )
    .fetch_one(conn)
    .await?)
}
