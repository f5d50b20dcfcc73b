//! The maintenance windows of a rollout, as named by the sites, the pool and the policy.

use muster_core::ids::RolloutId;
use serde_json::Value;
use sqlx::PgConnection;

use crate::error::Error;

/// A named maintenance window.
#[derive(Clone, Debug)]
pub struct NamedRow {
    pub name: String,
    /// `site`, `pool` or `rollout`.
    pub named_by: String,
    /// Name of the site, of the pool or of the rollout.
    pub namer: String,
    /// The spec as stored. Absent for a name without an object.
    pub spec: Option<Value>,
}

/// Lists the maintenance windows of a rollout: of the nodes' sites, of the pool, and of the policy.
pub async fn list_named(conn: &mut PgConnection, id: RolloutId) -> Result<Vec<NamedRow>, Error> {
    Ok(sqlx::query_as!(
        NamedRow,
        r#"SELECT named.name AS "name!", named.by AS "named_by!", named.namer AS "namer!", w.spec AS "spec?"
           FROM (SELECT site.spec ->> 'maintenance_window' AS name, 'site' AS by, site.name AS namer FROM objects site WHERE site.id IN (
                     SELECT n.site_id FROM rollout_nodes r JOIN nodes n ON n.id = r.node_id WHERE r.rollout_id = $1)
                 UNION SELECT pool.spec ->> 'maintenance_window', 'pool', pool.name FROM rollouts o JOIN objects pool ON pool.id = o.pool_id WHERE o.id = $1
                 UNION SELECT o.policy ->> 'maintenance_window', 'rollout', o.name FROM rollouts o WHERE o.id = $1) AS named
                LEFT JOIN objects w ON w.kind = 'maintenance_window' AND w.name = named.name
           WHERE named.name IS NOT NULL ORDER BY named.name, named.by DESC, named.namer"#,
        id as RolloutId
    )
    .fetch_all(conn)
    .await?)
}
