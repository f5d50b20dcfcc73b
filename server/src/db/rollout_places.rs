//! The sites, racks and hardware profiles of nodes, read once for all nodes of a rollout.

use std::collections::HashMap;

use muster_core::ids::{ObjectId, RolloutId};
use sqlx::PgConnection;
use uuid::Uuid;

use super::objects::Labels;
use crate::error::Error;

/// The sites, racks and hardware profiles, by id.
#[derive(Debug, Default)]
pub struct Places(HashMap<ObjectId, PlaceRow>);

/// A site, a rack or a hardware profile.
#[derive(Debug)]
struct PlaceRow {
    id: ObjectId,
    name: String,
    labels: Labels,
    /// Number of GPUs of a hardware profile, as declared.
    gpus: Option<String>,
    /// Throughput of a site's link in Mbit/s, as declared.
    link_mbps: Option<String>,
}

impl Places {
    /// Returns the name of a site or rack; empty for an object removed since.
    pub fn name(&self, id: ObjectId) -> &str {
        self.0.get(&id).map_or("", |row| row.name.as_str())
    }

    /// Returns the labels of a rack.
    pub fn labels(&self, id: ObjectId) -> Option<&Labels> {
        self.0.get(&id).map(|row| &row.labels)
    }

    /// Returns the number of GPUs by a hardware profile; 0 if the profile has none, `None` for a number
    /// that cannot be read.
    pub fn gpus(&self, profile: ObjectId) -> Option<u32> {
        let row = self.0.get(&profile)?;
        row.gpus.as_deref().unwrap_or("0").parse().ok()
    }

    /// Returns the declared throughput of a site's link in Mbit/s.
    pub fn link_mbps(&self, site: ObjectId) -> Option<u32> {
        self.0.get(&site)?.link_mbps.as_deref()?.parse().ok()
    }
}

/// Loads the sites, racks and hardware profiles.
pub async fn load(conn: &mut PgConnection) -> Result<Places, Error> {
    let rows = sqlx::query_as!(
        PlaceRow,
        r#"SELECT id AS "id: ObjectId", name, labels AS "labels: Labels", spec #>> '{gpus,count}' AS gpus, spec ->> 'link_mbps' AS link_mbps
           FROM objects WHERE kind IN ('site', 'rack', 'hardware_profile')"#
    )
    .fetch_all(conn)
    .await?;
    Ok(Places(rows.into_iter().map(|row| (row.id, row)).collect()))
}

/// The nodes of a site that receive an image or packages, without those of a rollout.
#[derive(Clone, Copy, Debug)]
pub struct ReceiversRow {
    pub site: ObjectId,
    pub imaged: i64,
    /// Installed, or closed by another rollout.
    pub installed: i64,
}

/// Counts the nodes of sites that receive an image or packages, without the nodes that a rollout
/// changes.
pub async fn count_receivers(
    conn: &mut PgConnection,
    rollout: RolloutId,
    sites: &[Uuid],
) -> Result<Vec<ReceiversRow>, Error> {
    Ok(sqlx::query_as!(
        ReceiversRow,
        r#"SELECT n.site_id AS "site: ObjectId", count(*) FILTER (WHERE n.state = 'imaging') AS "imaged!",
                  count(*) FILTER (WHERE n.state <> 'imaging') AS "installed!" FROM nodes n
           WHERE n.site_id = ANY ($2)
                 AND (n.state IN ('imaging', 'installing')
                      OR n.state = 'draining' AND EXISTS (SELECT FROM rollout_nodes o WHERE o.node_id = n.id AND o.mark = 'changing'))
                 AND NOT EXISTS (SELECT FROM rollout_nodes r
                                 WHERE r.rollout_id = $1 AND r.node_id = n.id AND r.mark IN ('changing', 'validating'))
           GROUP BY n.site_id"#,
        rollout as RolloutId,
        sites,
    )
    .fetch_all(conn)
    .await?)
}
