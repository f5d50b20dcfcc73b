//! Output of serial consoles. Only the latest part is kept per node, so a node writing more loses
//! its own older output first.

use std::net::IpAddr;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{NodeId, ObjectId};
use muster_core::wire::calls::ConsoleTarget;
use muster_core::wire::consoles::ConsoleChunk;
use sqlx::PgConnection;
use sqlx::types::ipnet::IpNet;
use uuid::Uuid;

use crate::error::Error;

/// The amount kept per node, by weight. A chunk weighs its bytes plus [`ROW`].
const KEPT: i64 = 512 << 10;
/// The weight of a row besides its text. Bounds the number of rows when a node writes many tiny
/// chunks.
const ROW: i32 = 64;

/// A chunk of console text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRow {
    pub id: i64,
    pub at: Timestamp,
    pub text: String,
}

/// Lists the declared consoles of a site's nodes.
pub async fn list_targets(
    conn: &mut PgConnection,
    site: ObjectId,
) -> Result<Vec<ConsoleTarget>, Error> {
    let rows = sqlx::query!(
        r#"SELECT id AS "node: NodeId", console_address AS "address!: IpNet", console_port AS "port!" FROM nodes
           WHERE site_id = $1 AND console_address IS NOT NULL ORDER BY id"#,
        site as ObjectId,
    )
    .fetch_all(conn)
    .await?;
    let target = |(node, address, port): (NodeId, IpAddr, i32)| {
        Some(ConsoleTarget {
            node,
            address,
            port: u16::try_from(port).ok()?,
        })
    };
    Ok(rows
        .into_iter()
        .filter_map(|row| target((row.node, row.address.addr(), row.port)))
        .collect())
}

/// Appends chunks to the consoles of a site's nodes and deletes the oldest chunks beyond the limit.
/// The cost does not depend on the stored amount. Chunks of other nodes and chunks already stored
/// are skipped. Writers to one node must be serialized by the caller.
pub async fn append(
    conn: &mut PgConnection,
    site: ObjectId,
    chunks: &[ConsoleChunk],
) -> Result<(), Error> {
    let nodes: Vec<Uuid> = chunks.iter().map(|chunk| chunk.node.0).collect();
    let at: Vec<jiff_sqlx::Timestamp> = chunks.iter().map(|chunk| chunk.at.to_sqlx()).collect();
    let texts: Vec<String> = chunks.iter().map(|chunk| chunk.text.clone()).collect();
    sqlx::query!(
        "INSERT INTO console_chunks (node_id, id, at, text)
         SELECT fresh.node_id, coalesce(latest.id, 0) + fresh.weight, fresh.at, fresh.text
         FROM (SELECT chunk.*, sum(octet_length(chunk.text) + $5) OVER (PARTITION BY chunk.node_id ORDER BY chunk.place) AS weight
               FROM unnest($1::uuid[], $2::timestamptz[], $3::text[]) WITH ORDINALITY AS chunk (node_id, at, text, place)) AS fresh
         JOIN nodes n ON n.id = fresh.node_id AND n.site_id = $4
         LEFT JOIN LATERAL (SELECT id FROM console_chunks c WHERE c.node_id = fresh.node_id ORDER BY id DESC LIMIT 1) AS latest ON true
         ON CONFLICT (node_id, at) DO NOTHING",
        &nodes,
        &at as _,
        &texts,
        site as ObjectId,
        ROW,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "DELETE FROM console_chunks AS old
         USING (SELECT DISTINCT unnest($1::uuid[]) AS node_id) AS written,
               LATERAL (SELECT max(id) AS id FROM console_chunks c WHERE c.node_id = written.node_id) AS latest
         WHERE old.node_id = written.node_id AND old.id <= latest.id - $2",
        &nodes,
        KEPT,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns at most `limit` chunks of a node's console, oldest first. With `after` the chunks
/// following that id are returned, otherwise the latest ones.
pub async fn tail(
    conn: &mut PgConnection,
    node: NodeId,
    after: Option<i64>,
    limit: i64,
) -> Result<Vec<ChunkRow>, Error> {
    let Some(after) = after else {
        let mut rows = sqlx::query_as!(
            ChunkRow,
            "SELECT id, at, text FROM console_chunks WHERE node_id = $1 ORDER BY id DESC LIMIT $2",
            node as NodeId,
            limit,
        )
        .fetch_all(conn)
        .await?;
        rows.reverse();
        return Ok(rows);
    };
    Ok(sqlx::query_as!(
        ChunkRow,
        "SELECT id, at, text FROM console_chunks WHERE node_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        node as NodeId,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?)
}
