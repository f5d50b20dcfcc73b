//! Legal holds: nodes with records of any age.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::NodeId;
use sqlx::PgConnection;

use crate::error::Error;

/// A node under a legal hold.
#[derive(Clone, Debug)]
pub struct HeldRow {
    pub node: String,
    pub reason: String,
    pub held_by: String,
    pub held_at: Timestamp,
}

/// Puts a node under a legal hold, in a transaction. A removal of records is over before, or begins
/// after the commit and keeps the records. `false`: the node is held already, and the first reason
/// stays.
pub async fn insert(
    conn: &mut PgConnection,
    node: NodeId,
    reason: &str,
    by: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    super::retention::lock(conn).await?;
    let done = sqlx::query!(
        "INSERT INTO legal_holds (node_id, reason, held_by, held_at) VALUES ($1, $2, $3, $4) ON CONFLICT (node_id) DO NOTHING",
        node as NodeId,
        reason,
        by,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends the legal hold of a node. `false`: the node is not held.
pub async fn delete(conn: &mut PgConnection, node: NodeId) -> Result<bool, Error> {
    let done = sqlx::query!("DELETE FROM legal_holds WHERE node_id = $1", node as NodeId)
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Returns the id of a node by name. A discovered machine without an act of a person is left out:
/// the server forgets such machines.
pub async fn find_node(conn: &mut PgConnection, name: &str) -> Result<Option<NodeId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: NodeId" FROM nodes n
           WHERE name = $1 AND NOT EXISTS (SELECT FROM untouched_strangers u WHERE u.node_id = n.id)"#,
        name,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the legal hold of a node.
pub async fn find(conn: &mut PgConnection, node: NodeId) -> Result<Option<HeldRow>, Error> {
    Ok(sqlx::query_as!(
        HeldRow,
        "SELECT n.name AS node, h.reason, h.held_by, h.held_at FROM legal_holds h JOIN nodes n ON n.id = h.node_id WHERE h.node_id = $1",
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists the nodes under a legal hold, by name.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<HeldRow>, Error> {
    Ok(sqlx::query_as!(
        HeldRow,
        "SELECT n.name AS node, h.reason, h.held_by, h.held_at FROM legal_holds h JOIN nodes n ON n.id = h.node_id ORDER BY n.name LIMIT 10000",
    )
    .fetch_all(conn)
    .await?)
}

/// Returns whether a segment of the history has an event of a node under a legal hold.
pub async fn is_segment_held(
    conn: &mut PgConnection,
    first: i64,
    last: i64,
) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM events e JOIN legal_holds h ON h.node_id = e.node_id WHERE e.seq BETWEEN $1 AND $2) AS "held!""#,
        first,
        last,
    )
    .fetch_one(conn)
    .await?)
}
