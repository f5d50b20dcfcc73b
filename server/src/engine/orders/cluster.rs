//! Members of a cluster as the scheduler must know them: from the hardware profile, never from facts.

use anyhow::Context;
use muster_core::clusters::SlurmNode;
use sqlx::PgConnection;

use super::Sources;
use crate::db;

/// Whether the list holds the node the job is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum With {
    Node,
    Others,
}

/// The members and the revision of the list.
pub(super) async fn members(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    with: With,
) -> anyhow::Result<(i64, Vec<SlurmNode>)> {
    let cluster = s.node.cluster_name.as_deref().context("the pool names no cluster")?;
    let (revision, rows) = db::specs::list_members(conn, cluster).await?;
    let wanted = rows.into_iter().filter(|row| with == With::Node || row.id != s.node.id);
    let nodes = wanted.map(|row| {
        let lock = row.stack.and_then(|stack| stack.lock);
        let features = lock.map(|lock| format!("stack_{}", &lock.digest().hex()[..12])).into_iter().collect();
        SlurmNode::new(&row.name, row.address.into(), &row.profile, row.rack, features)
    });
    Ok((revision, nodes.collect()))
}
