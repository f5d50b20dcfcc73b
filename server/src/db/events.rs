//! The append-only history. Each event is written in the transaction of the change it describes.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{EventId, NodeId, ObjectId, OperationId};
use serde_json::Value;
use sqlx::PgConnection;

use crate::error::Error;

/// An event: actor, action, object and reason.
#[derive(Clone, Debug)]
pub struct NewEvent {
    pub at: Timestamp,
    /// `user:alice`, `token:ci`, `agent:rack-lab`, `muster`.
    pub actor: String,
    /// `node.advanced`, `claim.created`, `job.failed`…
    pub kind: &'static str,
    pub node: Option<NodeId>,
    pub object: Option<ObjectId>,
    pub operation: Option<OperationId>,
    pub request_id: Option<String>,
    /// A sentence for the timeline.
    pub summary: String,
    pub detail: Value,
}

impl NewEvent {
    /// Returns an event without a subject.
    pub fn new(
        at: Timestamp,
        actor: impl Into<String>,
        kind: &'static str,
        summary: String,
    ) -> Self {
        Self {
            at,
            actor: actor.into(),
            kind,
            node: None,
            object: None,
            operation: None,
            request_id: None,
            summary,
            detail: Value::Object(serde_json::Map::new()),
        }
    }

    /// Returns an event about a node.
    pub fn node(
        at: Timestamp,
        actor: impl Into<String>,
        kind: &'static str,
        node: NodeId,
        summary: String,
    ) -> Self {
        Self {
            node: Some(node),
            ..Self::new(at, actor, kind, summary)
        }
    }

    /// Sets the declared object as subject.
    pub fn about(self, object: ObjectId) -> Self {
        Self {
            object: Some(object),
            ..self
        }
    }

    /// Sets the id of the request that caused the event.
    pub fn asked(self, request_id: Option<String>) -> Self {
        Self { request_id, ..self }
    }

    /// Sets the operation of the event.
    pub fn under(self, operation: Option<OperationId>) -> Self {
        Self { operation, ..self }
    }

    /// Adds a document beside the sentence.
    pub fn with(self, detail: Value) -> Self {
        Self { detail, ..self }
    }
}

/// Appends an event.
pub async fn insert(conn: &mut PgConnection, event: NewEvent) -> Result<(), Error> {
    insert_noted(conn, event).await.map(drop)
}

/// Appends an event and returns its id, for events remembered by another system.
pub async fn insert_noted(conn: &mut PgConnection, event: NewEvent) -> Result<EventId, Error> {
    let id = EventId::new();
    sqlx::query!(
        "INSERT INTO events (id, at, actor, kind, node_id, object_id, operation_id, request_id, summary, detail)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        id as EventId,
        event.at.to_sqlx() as _,
        event.actor,
        event.kind,
        event.node as Option<NodeId>,
        event.object as Option<ObjectId>,
        event.operation as Option<OperationId>,
        event.request_id,
        event.summary,
        event.detail,
    )
    .execute(conn)
    .await?;
    Ok(id)
}

/// An event as returned to readers.
#[derive(Clone, Debug)]
pub struct EventRow {
    pub seq: i64,
    pub id: EventId,
    pub at: Timestamp,
    pub actor: String,
    pub kind: String,
    pub node: Option<NodeId>,
    pub object: Option<ObjectId>,
    pub operation: Option<OperationId>,
    pub request_id: Option<String>,
    pub summary: String,
    pub detail: Value,
}

/// The events to read: all events, or the events of one node, one object or some topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    pub node: Option<NodeId>,
    pub object: Option<ObjectId>,
    /// Kinds, or prefixes of kinds ending in `*`, as in webhooks. Empty selects all kinds. Only
    /// [`seen`](super::seen) applies the topics.
    pub topics: Vec<String>,
}

/// Returns the number up to which the history is complete: no open transaction can still insert an
/// event at or below. Valid for statements starting after this one, because they see everything
/// committed by then.
pub async fn find_complete_end(conn: &mut PgConnection) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(r#"SELECT whole_event_seq() AS "seq!""#)
        .fetch_one(conn)
        .await?)
}

/// Returns the highest number given to an event, and 0 if there is no event.
pub async fn find_last(conn: &mut PgConnection) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(r#"SELECT last_event_seq() AS "seq!""#)
        .fetch_one(conn)
        .await?)
}

/// Lists events like [`list`], for a reader resuming at a position. A position beyond the last
/// event shows that the reader has read from another database, for example before a restore.
///
/// # Errors
/// [`Error::CursorExpired`] when `after` is beyond the last event.
pub async fn list_on(
    conn: &mut PgConnection,
    filter: &EventFilter,
    after: i64,
    limit: i64,
) -> Result<Vec<EventRow>, Error> {
    let rows = list(conn, filter, after, limit).await?;
    match rows.is_empty() && after > find_last(conn).await? {
        true => Err(Error::CursorExpired),
        false => Ok(rows),
    }
}

/// Lists events after a sequence number, oldest first, up to the complete part of the history. A
/// reader continuing from the last number received skips no event.
pub async fn list(
    conn: &mut PgConnection,
    filter: &EventFilter,
    after: i64,
    limit: i64,
) -> Result<Vec<EventRow>, Error> {
    let whole = find_complete_end(conn).await?;
    Ok(sqlx::query_as!(EventRow, r#"SELECT seq, id AS "id: EventId", at, actor, kind, node_id AS "node: NodeId", object_id AS "object: ObjectId",
                  operation_id AS "operation: OperationId", request_id, summary, detail
           FROM events
           WHERE seq > $1 AND seq <= $5
             AND ($2::uuid IS NULL OR node_id = $2) AND ($3::uuid IS NULL OR object_id = $3)
           ORDER BY seq LIMIT $4"#,
        after,
        filter.node as Option<NodeId>,
        filter.object as Option<ObjectId>,
        limit,
        whole,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the newest events, newest first, for the first view of a page.
pub async fn latest(
    conn: &mut PgConnection,
    filter: &EventFilter,
    limit: i64,
) -> Result<Vec<EventRow>, Error> {
    Ok(sqlx::query_as!(EventRow, r#"SELECT seq, id AS "id: EventId", at, actor, kind, node_id AS "node: NodeId", object_id AS "object: ObjectId",
                  operation_id AS "operation: OperationId", request_id, summary, detail
           FROM events
           WHERE ($1::uuid IS NULL OR node_id = $1) AND ($2::uuid IS NULL OR object_id = $2)
           ORDER BY seq DESC LIMIT $3"#,
        filter.node as Option<NodeId>,
        filter.object as Option<ObjectId>,
        limit,
    )
    .fetch_all(conn)
    .await?)
}
