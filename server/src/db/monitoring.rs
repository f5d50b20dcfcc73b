//! Queries over all nodes for monitoring: clock, counts and scrape targets.

use ipnet::IpNet;
use jiff::Timestamp;
use muster_core::lifecycle::state::State;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// Returns the time of the database server's clock.
pub async fn read_clock(conn: &mut PgConnection) -> Result<Timestamp, Error> {
    let row = sqlx::query!(r#"SELECT clock_timestamp() AS "now!: jiff_sqlx::Timestamp""#)
        .fetch_one(conn)
        .await?;
    Ok(row.now.to_jiff())
}

/// Counts the given nodes, or all nodes, by state. Used by metrics and the fleet's page.
pub async fn count_by_state(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
) -> Result<Vec<(State, i64)>, Error> {
    let rows = sqlx::query!(
        r#"SELECT state, count(*) AS "count!" FROM nodes WHERE $1::uuid[] IS NULL OR id = ANY ($1) GROUP BY state ORDER BY state"#,
        nodes,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.state, row.count)).collect())
}

/// A node in service, as a scrape target for Prometheus.
#[derive(Clone, Debug)]
pub struct TargetRow {
    pub name: String,
    pub address: IpNet,
    pub site: String,
    pub rack: Option<String>,
    pub pool: Option<String>,
    pub profile: Option<String>,
}

/// Lists the nodes in service among the given nodes, or among all, with the first address of each.
pub async fn list_targets(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
) -> Result<Vec<TargetRow>, Error> {
    Ok(sqlx::query_as!(
        TargetRow,
        r#"SELECT n.name, m.address AS "address!", s.name AS site, r.name AS "rack?", p.name AS "pool?", h.name AS "profile?"
           FROM nodes n
           JOIN objects s ON s.id = n.site_id
           JOIN LATERAL (SELECT address FROM node_macs WHERE node_id = n.id AND address IS NOT NULL ORDER BY mac LIMIT 1) m ON true
           LEFT JOIN objects r ON r.id = n.rack_id
           LEFT JOIN objects h ON h.id = n.profile_id
           LEFT JOIN claims c ON c.node_id = n.id AND c.state <> 'released'
           LEFT JOIN objects p ON p.id = c.pool_id
           WHERE n.state = 'in_service' AND ($1::uuid[] IS NULL OR n.id = ANY ($1)) ORDER BY n.name"#,
        nodes,
    )
    .fetch_all(conn)
    .await?)
}
