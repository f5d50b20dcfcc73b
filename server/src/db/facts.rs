//! Facts observed by inspection, with time and source.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::facts::Facts;
use muster_core::ids::NodeId;
use muster_core::words;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

words! {
    /// The system that observed facts.
    Source, "source of facts" {
        /// The live image, under Muster's control.
        Live = "live",
        /// The installed system, controlled by the tenant.
        Installed = "installed",
    }
}

/// Facts of a node with the time of observation and the source.
#[derive(Clone, Debug)]
pub struct SeenFacts {
    pub observed_at: Timestamp,
    pub source: Source,
    pub facts: Facts,
}

/// Stores an inventory. The source is `live` while the node runs the live image, otherwise
/// `installed`.
pub async fn insert(
    conn: &mut PgConnection,
    node: NodeId,
    facts: &Facts,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO facts (node_id, source, observed_at, facts)
         SELECT id, CASE WHEN live_host_key IS NULL THEN 'installed' ELSE 'live' END, $2, $3 FROM nodes WHERE id = $1",
        node as NodeId,
        now.to_sqlx() as _,
        Json(facts) as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the newest facts of a node.
///
/// # Errors
/// When stored facts cannot be parsed.
pub async fn latest(conn: &mut PgConnection, node: NodeId) -> Result<Option<SeenFacts>, Error> {
    let row = sqlx::query!(
        r#"SELECT observed_at, source, facts AS "facts: Json<Facts>" FROM facts WHERE node_id = $1
           ORDER BY observed_at DESC, id DESC LIMIT 1"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| SeenFacts {
        observed_at: row.observed_at.to_jiff(),
        source: row.source,
        facts: row.facts.0,
    }))
}

/// The newest facts of a node, with the origin of the running system.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    pub node: NodeId,
    /// The node runs a system that Muster did not write.
    pub is_foreign: bool,
    /// `None` for a node never inspected, and for facts that cannot be parsed.
    pub seen: Option<SeenFacts>,
}

/// Lists the newest facts of nodes. Unknown nodes are left out. Facts that cannot be parsed count as
/// absent, so one node does not fail the whole list.
pub async fn list_latest(
    conn: &mut PgConnection,
    nodes: &[NodeId],
) -> Result<Vec<NodeFacts>, Error> {
    let ids: Vec<Uuid> = nodes.iter().map(|node| node.0).collect();
    let rows = sqlx::query!(
        r#"SELECT n.id AS "id: NodeId", n.os_host_key IS NOT NULL AND n.root_disk_serial IS NULL AS "is_foreign!",
                  f.observed_at AS "observed_at?", f.source AS "source?: Source", f.facts AS "facts?"
           FROM nodes n LEFT JOIN LATERAL (
                  SELECT observed_at, source, facts FROM facts WHERE node_id = n.id ORDER BY observed_at DESC, id DESC LIMIT 1) f ON true
           WHERE n.id = ANY($1) ORDER BY n.name"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    let seen = |at: Option<jiff_sqlx::Timestamp>, source, facts: Option<Value>| {
        Some(SeenFacts {
            observed_at: at?.to_jiff(),
            source: source?,
            facts: serde_json::from_value(facts?).ok()?,
        })
    };
    let rows = rows.into_iter();
    Ok(rows
        .map(|row| NodeFacts {
            node: row.id,
            is_foreign: row.is_foreign,
            seen: seen(row.observed_at, row.source, row.facts),
        })
        .collect())
}

/// Returns the newest facts observed by the live image. An installed system is controlled by its
/// tenant, so its report about disks is not trusted for decisions.
///
/// # Errors
/// When stored facts cannot be parsed.
pub async fn latest_live(conn: &mut PgConnection, node: NodeId) -> Result<Option<Facts>, Error> {
    let found = sqlx::query_scalar!(
        r#"SELECT facts AS "facts: Json<Facts>" FROM facts WHERE node_id = $1 AND source = 'live'
           ORDER BY observed_at DESC, id DESC LIMIT 1"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(found.map(|json| json.0))
}

/// Returns whether the live image has inspected a node.
pub async fn has_live(conn: &mut PgConnection, node: NodeId) -> Result<bool, Error> {
    let found = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM facts WHERE node_id = $1 AND source = 'live') AS "found!""#,
        node as NodeId,
    )
    .fetch_one(conn)
    .await?;
    Ok(found)
}

/// Returns the facts of the hardware, such as the product: the newest of the live image. An adopted
/// machine has never run the live image: its first facts count, which the adoption read. Later ones may
/// come from a tenant.
///
/// # Errors
/// When stored facts cannot be parsed.
pub async fn find_machine(conn: &mut PgConnection, node: NodeId) -> Result<Option<Facts>, Error> {
    let found = sqlx::query_scalar!(
        r#"SELECT facts AS "facts: Json<Facts>" FROM facts WHERE node_id = $1
           ORDER BY source = 'live' DESC, CASE WHEN source = 'live' THEN observed_at END DESC, observed_at, id LIMIT 1"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(found.map(|json| json.0))
}
