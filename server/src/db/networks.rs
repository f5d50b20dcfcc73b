//! Input for rendering a node's network: the network profile, and the labels of other nodes in the
//! pool that must differ.

use std::collections::BTreeMap;

use muster_core::ids::NodeId;
use muster_core::network::NetworkProfile;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::error::Error;

/// Returns the name and document of the network profile of the revision assigned to a node's claim.
/// `None`: the revision has no profile.
///
/// # Errors
/// When the stored profile cannot be parsed.
pub async fn find_profile(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Option<(String, NetworkProfile)>, Error> {
    let row = sqlx::query!(
        r#"SELECT revision.network_profile_name AS "name!", revision.network_profile AS "spec!: Json<NetworkProfile>"
           FROM claims c LEFT JOIN present_revisions present ON present.pool_id = c.pool_id
           JOIN pool_revisions revision ON revision.id = COALESCE(c.assigned_id, present.revision_id)
           WHERE c.node_id = $1 AND c.state <> 'released' AND revision.network_profile IS NOT NULL"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| (row.name, row.spec.0)))
}

/// Lists the other nodes claimed for the same pool with at least one of the labels: name and text
/// labels, ordered by name.
///
/// # Errors
/// When stored labels cannot be parsed.
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
