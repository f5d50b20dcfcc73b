//! Members of a cluster as the scheduler must know them: from the hardware profile, never from facts.

use std::collections::HashMap;

use muster_core::clusters::SlurmNode;
use muster_core::profiles::HardwareProfile;
use muster_core::stacks::StackSpec;
use muster_core::wire::members::ClusterMembers;
use sqlx::PgConnection;

use crate::db;
use crate::error::Error;

/// A cluster's members, without those that are on their way out. Lists are made one after the other until the transaction ends.
///
/// # Errors
/// When the database fails.
pub async fn members(conn: &mut PgConnection, cluster: &str) -> Result<ClusterMembers, Error> {
    let (revision, rows) = db::specs::list_members(conn, cluster).await?;
    let profiles: HashMap<_, HardwareProfile> =
        db::specs::list_specs(conn, rows.iter().map(|row| row.profile)).await?;
    let stacks: HashMap<_, StackSpec> =
        db::specs::list_specs(conn, rows.iter().filter_map(|row| row.stack)).await?;
    let feature = |stack: &StackSpec| {
        Some(format!(
            "stack_{}",
            &stack.lock.as_ref()?.digest().hex()[..12]
        ))
    };
    let features: HashMap<_, Vec<String>> = stacks
        .iter()
        .map(|(id, stack)| (*id, feature(stack).into_iter().collect()))
        .collect();
    let nodes = rows.into_iter().filter_map(|row| {
        let features = row
            .stack
            .and_then(|stack| features.get(&stack))
            .cloned()
            .unwrap_or_default();
        Some(SlurmNode::new(
            &row.name,
            row.address.into(),
            profiles.get(&row.profile)?,
            row.rack,
            features,
        ))
    });
    Ok(ClusterMembers {
        revision,
        nodes: nodes.collect(),
    })
}
