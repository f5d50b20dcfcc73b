//! Removed segments of the history: runs of seals, exported with their events before the removal.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;

use super::seals::SealRow;
use crate::error::Error;

/// Kinds of events that an agent is told to remember.
const MARKS: [&str; 6] = [
    "act.started",
    "caution.entered",
    "caution.seen",
    "caution.widened",
    "permit.redeemed",
    "permit.refused",
];

/// A removed segment.
#[derive(Clone, Debug)]
pub struct SegmentRow {
    pub first_seal: i64,
    pub last_seal: i64,
    pub first_seq: i64,
    pub last_seq: i64,
    pub events: i64,
    /// The seal before the segment.
    pub previous: Vec<u8>,
    /// The last seal of the segment.
    pub hash: Vec<u8>,
    /// Name of the exported file.
    pub file: String,
    /// SHA-256 of the exported file.
    pub digest: Vec<u8>,
    pub removed_at: Timestamp,
}

/// Lists the seals from before a time among the next `limit` seals after a number, in order. The
/// newest seal is left out, because the next seal continues from the newest.
pub async fn list_old_seals(
    conn: &mut PgConnection,
    after: i64,
    before: Timestamp,
    limit: i64,
) -> Result<Vec<SealRow>, Error> {
    Ok(sqlx::query_as!(
        SealRow,
        "SELECT later.number, later.previous, later.hash, later.sealed_at, later.seqs, later.digests
         FROM (SELECT * FROM event_seals WHERE number > $1 ORDER BY number LIMIT $3) AS later
         WHERE later.sealed_at < $2 AND later.number < (SELECT max(number) FROM event_seals) ORDER BY later.number",
        after,
        before.to_sqlx() as _,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists removed segments after a seal, in order.
pub async fn list(
    conn: &mut PgConnection,
    after: i64,
    limit: i64,
) -> Result<Vec<SegmentRow>, Error> {
    Ok(sqlx::query_as!(
        SegmentRow,
        "SELECT first_seal, last_seal, first_seq, last_seq, events, previous, hash, file, digest, removed_at FROM removed_segments
         WHERE first_seal > $1 ORDER BY first_seal LIMIT $2",
        after,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Removes a segment: first the state in the events is copied, then events and seals go.
/// Returns the number of removed events.
pub async fn remove(conn: &mut PgConnection, segment: &SegmentRow) -> Result<u64, Error> {
    let (first, last) = (segment.first_seq, segment.last_seq);
    keep_state(conn, first, last).await?;
    sqlx::query!(
        "INSERT INTO removed_segments (first_seal, last_seal, first_seq, last_seq, events, previous, hash, file, digest, removed_at, tells_adoption)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, EXISTS (SELECT FROM events WHERE seq BETWEEN $3 AND $4 AND kind IN ('rows.adopted', 'rows.sealed'))",
        segment.first_seal,
        segment.last_seal,
        first,
        last,
        segment.events,
        segment.previous,
        segment.hash,
        segment.file,
        segment.digest,
        segment.removed_at.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    let removed = sqlx::query!(
        "DELETE FROM events WHERE seq BETWEEN $1 AND $2",
        first,
        last
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "DELETE FROM event_seals WHERE number BETWEEN $1 AND $2",
        segment.first_seal,
        segment.last_seal,
    )
    .execute(conn)
    .await?;
    Ok(removed.rows_affected())
}

/// Copies the state held by events: marks of agents, and versions of stacks from a server of the
/// version before.
async fn keep_state(conn: &mut PgConnection, first: i64, last: i64) -> Result<(), Error> {
    let marks: Vec<String> = MARKS.map(str::to_owned).into();
    sqlx::query!(
        "INSERT INTO event_marks (event_id, at) SELECT id, at FROM events WHERE seq BETWEEN $1 AND $2 AND kind = ANY ($3)
         ON CONFLICT (event_id) DO NOTHING",
        first,
        last,
        &marks,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "INSERT INTO stack_versions (stack_id, version, digest)
         SELECT DISTINCT ON (o.id, e.detail ->> 'version') o.id, e.detail ->> 'version', e.detail ->> 'digest'
         FROM events e JOIN objects o ON o.id = e.object_id
         WHERE e.seq BETWEEN $1 AND $2 AND o.kind = 'stack' AND e.detail ->> 'version' IS NOT NULL AND e.detail ->> 'digest' IS NOT NULL
         ORDER BY o.id, e.detail ->> 'version', e.seq
         ON CONFLICT (stack_id, version) DO NOTHING",
        first,
        last,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes marks that no agent remembers: every agent has called a day after the mark or later, and
/// shows another event. Events of cautions stay: an agent with an event of a settled loss is told
/// the event of the caution again. At most `limit`.
pub async fn delete_old_marks(conn: &mut PgConnection, limit: i64) -> Result<u64, Error> {
    let done = sqlx::query!(
        "DELETE FROM event_marks WHERE event_id IN (
             SELECT m.event_id FROM event_marks m
             WHERE m.at < (SELECT min(COALESCE(last_seen, '-infinity')) FROM agents) - interval '1 day'
               AND NOT EXISTS (SELECT FROM agents a WHERE a.shown_event = m.event_id OR a.shown_event IS NULL)
               AND NOT EXISTS (SELECT FROM caution_witnesses w WHERE w.event_id = m.event_id) LIMIT $1)",
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
