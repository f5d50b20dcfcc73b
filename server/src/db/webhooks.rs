//! Webhooks: the position of each in the history, the current sender, and the attempted deliveries.
//! Writes during sending are guarded by the sender's lease.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{EventId, NodeId, ObjectId, OperationId};
use muster_core::words;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::events::EventRow;
use crate::error::Error;

/// The progress and failures of a webhook.
#[derive(Clone, Debug)]
pub struct StateRow {
    pub seq: i64,
    pub attempts: i32,
    pub failing_since: Option<jiff_sqlx::Timestamp>,
    pub due_at: jiff_sqlx::Timestamp,
    pub last_error: Option<String>,
    pub stopped_because: Option<String>,
}

/// A webhook leased by this sender.
#[derive(Clone, Debug)]
pub struct Held {
    pub webhook: ObjectId,
    pub lease: Uuid,
    pub name: String,
    pub spec: Value,
    pub generation: i64,
    pub state: StateRow,
}

words! {
    /// The reason for a delivery.
    DeliveryReason, "reason for a delivery" {
        Event = "event",
        /// A person tests the receiver.
        Test = "test",
        /// A person repeats an earlier delivery.
        Redelivery = "redelivery",
    }
}

words! {
    /// The state of a delivery.
    DeliveryState, "state of a delivery" {
        Queued = "queued",
        Delivered = "delivered",
        Failed = "failed",
    }
}

/// A delivery: attempted, or requested by a person and still queued.
#[derive(Clone, Debug)]
pub struct DeliveryRow {
    pub id: Uuid,
    pub seq: Option<i64>,
    pub event_id: EventId,
    pub kind: String,
    pub reason: DeliveryReason,
    pub state: DeliveryState,
    pub attempt: i32,
    pub at: Timestamp,
    pub status: Option<i32>,
    pub error: Option<String>,
    pub duration_ms: Option<i32>,
}

/// Starts a webhook at the end of the history. An existing webhook continues at its position at
/// once, with its failures cleared.
pub async fn start(
    conn: &mut PgConnection,
    webhook: ObjectId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO webhook_states (webhook_id, seq, due_at) VALUES ($1, last_event_seq(), $2)
         ON CONFLICT (webhook_id) DO UPDATE SET attempts = 0, failing_since = NULL, last_error = NULL, stopped_at = NULL,
             stopped_because = NULL, due_at = $2",
        webhook as ObjectId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the progress of a webhook.
pub async fn find_state(
    conn: &mut PgConnection,
    webhook: ObjectId,
) -> Result<Option<StateRow>, Error> {
    Ok(sqlx::query_as!(
        StateRow,
        r#"SELECT seq, attempts, failing_since AS "failing_since: jiff_sqlx::Timestamp", due_at AS "due_at: jiff_sqlx::Timestamp",
                  last_error, stopped_because
           FROM webhook_states WHERE webhook_id = $1"#,
        webhook as ObjectId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns whether any fleet-wide webhook subscribes to events of a kind. `topics` lists the kind
/// with all matching prefixes: `["audit.sealed", "audit.*", "*"]`.
pub async fn is_wanted(conn: &mut PgConnection, topics: &[String]) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM objects WHERE kind = 'webhook' AND spec -> 'topics' ?| $1 AND spec ->> 'site' IS NULL
                          AND spec -> 'enabled' IS DISTINCT FROM 'false') AS "wanted!""#,
        topics,
    )
    .fetch_one(conn)
    .await?)
}

/// Leases webhooks with events or queued deliveries to send and without a live sender.
pub async fn lease(
    conn: &mut PgConnection,
    lease: Uuid,
    now: Timestamp,
    until: Timestamp,
    limit: i64,
) -> Result<Vec<ObjectId>, Error> {
    let last = super::events::find_last(conn).await?;
    Ok(sqlx::query_scalar!(
        r#"UPDATE webhook_states SET lease = $1, leased_until = $3
           WHERE webhook_id IN (
               SELECT s.webhook_id FROM webhook_states s JOIN objects o ON o.id = s.webhook_id
               WHERE (s.leased_until IS NULL OR s.leased_until < $2)
                 AND (EXISTS (SELECT FROM webhook_deliveries d WHERE d.webhook_id = s.webhook_id AND d.state = 'queued')
                      OR (s.stopped_at IS NULL AND s.due_at <= $2 AND s.seq < $5 AND o.spec -> 'enabled' IS DISTINCT FROM 'false'))
               ORDER BY s.due_at LIMIT $4 FOR UPDATE OF s SKIP LOCKED)
           RETURNING webhook_id AS "webhook: ObjectId""#,
        lease,
        now.to_sqlx() as _,
        until.to_sqlx() as _,
        limit,
        last,
    )
    .fetch_all(conn)
    .await?)
}

/// Returns a webhook, if this sender still has the lease.
pub async fn find_held(
    conn: &mut PgConnection,
    webhook: ObjectId,
    lease: Uuid,
) -> Result<Option<Held>, Error> {
    let row = sqlx::query!(
        r#"SELECT o.name, o.spec, o.generation, s.seq, s.attempts, s.failing_since AS "failing_since: jiff_sqlx::Timestamp",
                  s.due_at AS "due_at: jiff_sqlx::Timestamp", s.last_error, s.stopped_because
           FROM webhook_states s JOIN objects o ON o.id = s.webhook_id WHERE s.webhook_id = $1 AND s.lease = $2"#,
        webhook as ObjectId,
        lease,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Held {
        webhook,
        lease,
        name: row.name,
        spec: row.spec,
        generation: row.generation,
        state: StateRow {
            seq: row.seq,
            attempts: row.attempts,
            failing_since: row.failing_since,
            due_at: row.due_at,
            last_error: row.last_error,
            stopped_because: row.stopped_because,
        },
    }))
}

/// Releases the lease of a webhook.
pub async fn release(conn: &mut PgConnection, webhook: ObjectId, lease: Uuid) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE webhook_states SET lease = NULL, leased_until = NULL WHERE webhook_id = $1 AND lease = $2",
        webhook as ObjectId,
        lease,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Advances the position of a webhook: every event up to `seq` was delivered or does not match.
/// `false`: the sender has lost the lease, or the webhook's spec has changed.
pub async fn set_taken(
    conn: &mut PgConnection,
    held: &Held,
    seq: i64,
    until: Timestamp,
) -> Result<bool, Error> {
    let unchanged = sqlx::query_scalar!(
        r#"UPDATE webhook_states s SET seq = greatest(s.seq, $3), attempts = 0, failing_since = NULL, last_error = NULL, leased_until = $4
           FROM objects o WHERE s.webhook_id = $1 AND s.lease = $2 AND o.id = s.webhook_id
           RETURNING o.generation = $5 AS "unchanged!""#,
        held.webhook as ObjectId,
        held.lease,
        seq,
        until.to_sqlx() as _,
        held.generation,
    )
    .fetch_optional(conn)
    .await?;
    Ok(unchanged == Some(true))
}

/// Renews the lease while deliveries requested by a person are sent. `false`: the lease is lost.
pub async fn renew(conn: &mut PgConnection, held: &Held, until: Timestamp) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE webhook_states SET leased_until = $3 WHERE webhook_id = $1 AND lease = $2",
        held.webhook as ObjectId,
        held.lease,
        until.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Records a failed delivery of the next event and the time of the next attempt. `false`: the
/// sender has lost the lease, or the webhook's spec has changed and sending starts again.
pub async fn set_failed(
    conn: &mut PgConnection,
    held: &Held,
    error: &str,
    due_at: Timestamp,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE webhook_states s SET attempts = s.attempts + 1, failing_since = coalesce(s.failing_since, $3), last_error = $4, due_at = $5
         FROM objects o WHERE s.webhook_id = $1 AND s.lease = $2 AND o.id = s.webhook_id AND o.generation = $6",
        held.webhook as ObjectId,
        held.lease,
        now.to_sqlx() as _,
        error,
        due_at.to_sqlx() as _,
        held.generation,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Stops a webhook, with the reason. The caller has the lease and has just recorded the failed
/// delivery.
pub async fn stop(
    conn: &mut PgConnection,
    held: &Held,
    because: &str,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE webhook_states SET stopped_at = $3, stopped_because = $4 WHERE webhook_id = $1 AND lease = $2",
        held.webhook as ObjectId,
        held.lease,
        now.to_sqlx() as _,
        because,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists events after `after` and up to `up_to`, oldest first, each with the current site of its
/// node or object.
pub async fn list_events(
    conn: &mut PgConnection,
    after: i64,
    up_to: i64,
    limit: i64,
) -> Result<Vec<(EventRow, Option<String>)>, Error> {
    let rows = sqlx::query!(
        r#"SELECT e.seq, e.id AS "id: EventId", e.at AS "at: jiff_sqlx::Timestamp", e.actor, e.kind, e.node_id AS "node: NodeId", e.object_id AS "object: ObjectId",
                  e.operation_id AS "operation: OperationId", e.request_id, e.summary, e.detail,
                  coalesce(ns.name, CASE o.kind WHEN 'site' THEN o.name END, os.name) AS site
           FROM events e
                LEFT JOIN nodes n ON n.id = e.node_id LEFT JOIN objects ns ON ns.id = n.site_id
                LEFT JOIN objects o ON o.id = e.object_id
                LEFT JOIN object_refs r ON r.from_id = o.id AND r.pointer = '/spec/site' LEFT JOIN objects os ON os.id = r.to_id
           WHERE e.seq > $1 AND e.seq <= $2 ORDER BY e.seq LIMIT $3"#,
        after,
        up_to,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let event = rows.into_iter().map(|row| {
        let event = EventRow {
            seq: row.seq,
            id: row.id,
            at: row.at.to_jiff(),
            actor: row.actor,
            kind: row.kind,
            node: row.node,
            object: row.object,
            operation: row.operation,
            request_id: row.request_id,
            summary: row.summary,
            detail: row.detail,
        };
        (event, row.site)
    });
    Ok(event.collect())
}

/// Inserts an attempted or requested delivery and deletes the oldest finished ones beyond `keep`.
pub async fn insert_delivery(
    conn: &mut PgConnection,
    webhook: ObjectId,
    row: &DeliveryRow,
    keep: i64,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO webhook_deliveries (id, webhook_id, seq, event_id, kind, reason, state, attempt, at, status, error, duration_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        row.id,
        webhook as ObjectId,
        row.seq,
        row.event_id as EventId,
        row.kind,
        row.reason as DeliveryReason,
        row.state as DeliveryState,
        row.attempt,
        row.at.to_sqlx() as _,
        row.status,
        row.error,
        row.duration_ms,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "DELETE FROM webhook_deliveries WHERE webhook_id = $1 AND state <> 'queued'
             AND id <= (SELECT id FROM webhook_deliveries WHERE webhook_id = $1 ORDER BY id DESC OFFSET $2 LIMIT 1)",
        webhook as ObjectId,
        keep,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Stores the result of a requested delivery.
pub async fn finish_delivery(conn: &mut PgConnection, row: &DeliveryRow) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE webhook_deliveries SET state = $2, attempt = $3, at = $4, status = $5, error = $6, duration_ms = $7 WHERE id = $1",
        row.id,
        row.state as DeliveryState,
        row.attempt,
        row.at.to_sqlx() as _,
        row.status,
        row.error,
        row.duration_ms,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists deliveries requested by people and not yet sent, oldest first.
pub async fn list_queued(
    conn: &mut PgConnection,
    webhook: ObjectId,
) -> Result<Vec<DeliveryRow>, Error> {
    Ok(sqlx::query_as!(DeliveryRow, r#"SELECT id, seq, event_id AS "event_id: EventId", kind, reason, state, attempt, at, status, error, duration_ms
           FROM webhook_deliveries WHERE webhook_id = $1 AND state = 'queued' ORDER BY id"#,
        webhook as ObjectId,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the newest deliveries of a webhook, newest first.
pub async fn list_deliveries(
    conn: &mut PgConnection,
    webhook: ObjectId,
    limit: i64,
) -> Result<Vec<DeliveryRow>, Error> {
    Ok(sqlx::query_as!(DeliveryRow, r#"SELECT id, seq, event_id AS "event_id: EventId", kind, reason, state, attempt, at, status, error, duration_ms
           FROM webhook_deliveries WHERE webhook_id = $1 ORDER BY id DESC LIMIT $2"#,
        webhook as ObjectId,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists deliveries by id. Deleted ids are left out.
pub async fn list_deliveries_by_id(
    conn: &mut PgConnection,
    ids: &[Uuid],
) -> Result<Vec<DeliveryRow>, Error> {
    Ok(sqlx::query_as!(DeliveryRow, r#"SELECT id, seq, event_id AS "event_id: EventId", kind, reason, state, attempt, at, status, error, duration_ms
           FROM webhook_deliveries WHERE id = ANY ($1)"#, ids,)
        .fetch_all(conn)
        .await?)
}

/// Returns one delivery of a webhook.
pub async fn find_delivery(
    conn: &mut PgConnection,
    webhook: ObjectId,
    id: Uuid,
) -> Result<Option<DeliveryRow>, Error> {
    Ok(
        sqlx::query_as!(DeliveryRow, r#"SELECT id, seq, event_id AS "event_id: EventId", kind, reason, state, attempt, at, status, error, duration_ms
           FROM webhook_deliveries WHERE webhook_id = $1 AND id = $2"#, webhook as ObjectId, id,)
            .fetch_optional(conn)
            .await?,
    )
}
