//! The append-only history. Always written in the transaction of the change it tells.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{EventId, NodeId, ObjectId, OperationId};
use serde_json::Value;
use sqlx::PgConnection;

use crate::error::Error;

/// Who or what did what to which object, and why.
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
    /// One sentence for the timeline.
    pub summary: String,
    pub detail: Value,
}

impl NewEvent {
    /// An event about nothing in particular yet.
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

    /// An event about a node.
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

    /// About a declared object.
    pub fn about(self, object: ObjectId) -> Self {
        Self {
            object: Some(object),
            ..self
        }
    }

    /// In answer to a request.
    pub fn asked(self, request_id: Option<String>) -> Self {
        Self { request_id, ..self }
    }

    /// Under an operation.
    pub fn under(self, operation: Option<OperationId>) -> Self {
        Self { operation, ..self }
    }

    /// With a document beside the sentence.
    pub fn with(self, detail: Value) -> Self {
        Self { detail, ..self }
    }
}

/// Appends an event.
pub async fn insert(conn: &mut PgConnection, event: NewEvent) -> Result<(), Error> {
    insert_noted(conn, event).await.map(drop)
}

/// Appends an event that somebody outside is to remember; its id.
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

/// The digest with which a version of an object was first written, where its events note one.
pub async fn find_digest(
    conn: &mut PgConnection,
    object: ObjectId,
    version: &str,
) -> Result<Option<String>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT detail ->> 'digest' AS "digest!" FROM events
           WHERE object_id = $1 AND detail ->> 'version' = $2 AND detail ->> 'digest' IS NOT NULL ORDER BY seq LIMIT 1"#,
        object as ObjectId,
        version,
    )
    .fetch_optional(conn)
    .await?)
}

/// An event as readers get it.
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

/// Which events to read: all of them, or those of one node, one object, some topics.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    pub node: Option<NodeId>,
    pub object: Option<ObjectId>,
    /// Kinds, or their beginnings with a `*`, as webhooks name them; all of them when empty. Only [`seen`](super::seen) looks at them.
    pub topics: Vec<String>,
}

/// How far the history is whole: no transaction under way can still put an event before this number. It speaks of what is read after it, by
/// statements that see what is committed by then.
pub async fn whole(conn: &mut PgConnection) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(r#"SELECT whole_event_seq() AS "seq!""#)
        .fetch_one(conn)
        .await?)
}

/// The last number that an event was given; 0 before the first.
pub async fn last(conn: &mut PgConnection) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(r#"SELECT last_event_seq() AS "seq!""#)
        .fetch_one(conn)
        .await?)
}

/// As [`list`], for a reader that says how far it is: one that has seen more than there ever was read a database that is gone.
///
/// # Errors
/// [`Error::CursorExpired`], or the database's.
pub async fn list_on(
    conn: &mut PgConnection,
    filter: &EventFilter,
    after: i64,
    limit: i64,
) -> Result<Vec<EventRow>, Error> {
    let rows = list(conn, filter, after, limit).await?;
    match rows.is_empty() && after > last(conn).await? {
        true => Err(Error::CursorExpired),
        false => Ok(rows),
    }
}

/// Events after a sequence number, oldest first, as far as the history is whole: a reader that goes on from the last number it got skips none.
pub async fn list(
    conn: &mut PgConnection,
    filter: &EventFilter,
    after: i64,
    limit: i64,
) -> Result<Vec<EventRow>, Error> {
    let whole = whole(conn).await?;
    Ok(sqlx::query_as!(
        EventRow,
        r#"SELECT seq, id AS "id: EventId", at, actor, kind, node_id AS "node: NodeId", object_id AS "object: ObjectId",
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

/// The newest events, newest first: what a page opens with.
pub async fn latest(
    conn: &mut PgConnection,
    filter: &EventFilter,
    limit: i64,
) -> Result<Vec<EventRow>, Error> {
    Ok(sqlx::query_as!(
        EventRow,
        r#"SELECT seq, id AS "id: EventId", at, actor, kind, node_id AS "node: NodeId", object_id AS "object: ObjectId",
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
