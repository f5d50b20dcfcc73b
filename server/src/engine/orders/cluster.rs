//! Members of a cluster as the scheduler must know them: from the hardware profile, never from facts.

use std::collections::HashMap;
use std::sync::Arc;

use muster_core::clusters::SlurmNode;
use muster_core::profiles::HardwareProfile;
use muster_core::stacks::StackSpec;
use sqlx::{Acquire as _, PgConnection};
use tokio::sync::Mutex;

use crate::db;
use crate::error::Error;

/// The lists of members that go into one answer: each is made once, after all of its jobs were leased.
#[derive(Debug, Default)]
pub struct Members(Mutex<HashMap<String, List>>);

/// The revision of a list, and the list.
type List = (i64, Arc<[SlurmNode]>);

impl Members {
    /// A cluster's members, without those that are on their way out.
    pub(super) async fn of(&self, conn: &mut PgConnection, cluster: &str) -> Result<List, Error> {
        let mut lists = self.0.lock().await;
        if let Some(list) = lists.get(cluster) {
            return Ok(list.clone());
        }
        let list = load(conn, cluster).await?;
        lists.insert(cluster.to_owned(), list.clone());
        Ok(list)
    }
}

async fn load(conn: &mut PgConnection, cluster: &str) -> Result<List, Error> {
    let mut tx = conn.begin().await?;
    let (revision, rows) = db::specs::list_members(&mut tx, cluster).await?;
    let profiles: HashMap<_, HardwareProfile> =
        db::specs::list_specs(&mut tx, rows.iter().map(|row| row.profile)).await?;
    let stacks: HashMap<_, StackSpec> = db::specs::list_specs(&mut tx, rows.iter().filter_map(|row| row.stack)).await?;
    tx.commit().await?;
    let feature = |stack: &StackSpec| Some(format!("stack_{}", &stack.lock.as_ref()?.digest().hex()[..12]));
    let features: HashMap<_, Vec<String>> =
        stacks.iter().map(|(id, stack)| (*id, feature(stack).into_iter().collect())).collect();
    let nodes = rows.into_iter().filter_map(|row| {
        let features = row.stack.and_then(|stack| features.get(&stack)).cloned().unwrap_or_default();
        Some(SlurmNode::new(&row.name, row.address.into(), profiles.get(&row.profile)?, row.rack, features))
    });
    Ok((revision, nodes.collect()))
}
