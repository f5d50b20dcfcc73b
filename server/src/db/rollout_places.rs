//! The sites, racks and hardware profiles of nodes, read once for all nodes of a rollout.

use std::collections::HashMap;

use muster_core::ids::ObjectId;
use sqlx::PgConnection;

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
}

/// Loads the sites, racks and hardware profiles.
pub async fn load(conn: &mut PgConnection) -> Result<Places, Error> {
    let rows = sqlx::query_as!(
        PlaceRow,
        r#"SELECT id AS "id: ObjectId", name, labels AS "labels: Labels", spec #>> '{gpus,count}' AS gpus
           FROM objects WHERE kind IN ('site', 'rack', 'hardware_profile')"#
    )
    .fetch_all(conn)
    .await?;
    Ok(Places(rows.into_iter().map(|row| (row.id, row)).collect()))
}
