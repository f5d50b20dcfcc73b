//! What the network of a node is rendered from, and what must differ from it.

use std::collections::BTreeMap;

use muster_core::ids::NodeId;
use muster_core::network::NetworkProfile;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::error::Error;

/// The network profile of the pool that a node is claimed for: its name, and `None` where it is gone. Nothing where the pool names none.
///
/// # Errors
/// When the database fails or its document cannot be read any more.
pub async fn find_profile(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Option<(String, Option<NetworkProfile>)>, Error> {
    let row = sqlx::query!(
        r#"SELECT pool.spec ->> 'network_profile' AS "name!", np.spec AS "spec?: Json<NetworkProfile>"
           FROM claims c JOIN objects pool ON pool.id = c.pool_id
           LEFT JOIN objects np ON np.kind = 'network_profile' AND np.name = pool.spec ->> 'network_profile'
           WHERE c.node_id = $1 AND c.state <> 'released' AND pool.spec ->> 'network_profile' IS NOT NULL"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| (row.name, row.spec.map(|spec| spec.0))))
}

/// The other nodes that are claimed for a node's pool and have one of these labels, by name, with their text labels.
///
/// # Errors
/// When the database fails or labels cannot be read any more.
pub async fn list_labelled(
    conn: &mut PgConnection,
    node: NodeId,
    labels: &[String],
) -> Result<Vec<(String, BTreeMap<String, String>)>, Error> {
    let rows = sqlx::query!(
        r#"SELECT n.name, n.labels AS "labels: Json<BTreeMap<String, String>>"
           FROM claims own JOIN claims c ON c.pool_id = own.pool_id AND c.state <> 'released' JOIN nodes n ON n.id = c.node_id
           WHERE own.node_id = $1 AND own.state <> 'released' AND n.id <> $1 AND n.labels ?| $2 ORDER BY n.name"#,
        node as NodeId,
        labels,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.name, row.labels.0))
        .collect())
}
