//! Alerts received from monitoring, and the action taken for each.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::alerts::AlertOutcome;
use muster_core::ids::{NodeId, RolloutId};
use sqlx::PgConnection;
use sqlx::types::ipnet::IpNet;

use crate::error::Error;

/// The identity of a stored alert: node, fingerprint and start time. The name is stored beside it.
#[derive(Clone, Copy, Debug)]
pub struct NewAlert<'a> {
    pub node: NodeId,
    pub fingerprint: &'a str,
    pub starts_at: Timestamp,
    pub name: &'a str,
}

/// Returns the name of the node with this name, or else of the node with this address.
pub async fn find_node(conn: &mut PgConnection, key: &str) -> Result<Option<String>, Error> {
    let address: Option<std::net::IpAddr> = key.parse().ok();
    Ok(sqlx::query_scalar!(
        "SELECT name FROM nodes WHERE name = $1
         UNION ALL SELECT n.name FROM node_macs m JOIN nodes n ON n.id = m.node_id WHERE m.address = $2 LIMIT 1",
        key,
        address.map(IpNet::from) as Option<IpNet>,
    )
    .fetch_optional(conn)
    .await?
    .flatten())
}

/// Serializes the handling of alerts until the end of the transaction. Two requests counting at
/// once could both quarantine the last node allowed by the limit.
pub async fn one_at_a_time(conn: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtextextended('muster alerts', 0))")
        .execute(conn)
        .await?;
    Ok(())
}

/// Returns the recorded outcome of an alert. `None`: the alert was never received.
pub async fn find(
    conn: &mut PgConnection,
    alert: NewAlert<'_>,
) -> Result<Option<AlertOutcome>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT became FROM alerts WHERE node_id = $1 AND fingerprint = $2 AND starts_at = $3",
        alert.node as NodeId,
        alert.fingerprint,
        alert.starts_at.to_sqlx() as _,
    )
    .fetch_optional(conn)
    .await?)
}

/// Stores an alert with its outcome, or updates the outcome and time of a stored alert.
pub async fn set(
    conn: &mut PgConnection,
    alert: NewAlert<'_>,
    became: AlertOutcome,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO alerts (node_id, fingerprint, starts_at, name, heard_at, became) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (node_id, fingerprint, starts_at) DO UPDATE SET became = excluded.became, heard_at = excluded.heard_at",
        alert.node as NodeId,
        alert.fingerprint,
        alert.starts_at.to_sqlx() as _,
        alert.name,
        now.to_sqlx() as _,
        became as AlertOutcome,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records the end of an alert. `false`: the alert is unknown or has already ended.
pub async fn end(
    conn: &mut PgConnection,
    alert: NewAlert<'_>,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE alerts SET ended_at = $4 WHERE node_id = $1 AND fingerprint = $2 AND starts_at = $3 AND ended_at IS NULL",
        alert.node as NodeId,
        alert.fingerprint,
        alert.starts_at.to_sqlx() as _,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Takes back the end of an alert that fires again with the same begin: monitoring was away. `false`:
/// the alert is unknown or has no end.
pub async fn reopen(conn: &mut PgConnection, alert: NewAlert<'_>) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE alerts SET ended_at = NULL WHERE node_id = $1 AND fingerprint = $2 AND starts_at = $3 AND ended_at IS NOT NULL",
        alert.node as NodeId,
        alert.fingerprint,
        alert.starts_at.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// An alert that fires on nodes of a rollout.
#[derive(Clone, Debug)]
pub struct FiringAlert {
    pub name: String,
    pub nodes: i64,
    /// Begin of the oldest.
    pub since: jiff_sqlx::Timestamp,
}

/// Lists alerts of the given names that fire on nodes taken by a rollout, and began after the node was
/// taken; the oldest first.
pub async fn list_firing(
    conn: &mut PgConnection,
    rollout: RolloutId,
    names: &[String],
) -> Result<Vec<FiringAlert>, Error> {
    let rows = sqlx::query_as!(
        FiringAlert,
        r#"SELECT a.name, count(DISTINCT a.node_id) AS "nodes!", min(a.starts_at) AS "since!: jiff_sqlx::Timestamp"
           FROM rollout_nodes r
           JOIN alerts a ON a.node_id = r.node_id AND a.ended_at IS NULL AND a.starts_at >= r.taken_at
           WHERE r.rollout_id = $1 AND a.name = ANY($2)
           GROUP BY a.name ORDER BY min(a.starts_at), a.name"#,
        rollout as RolloutId,
        names
    );
    Ok(rows.fetch_all(conn).await?)
}

/// Counts the nodes quarantined by alerts of this name since a time, and all nodes now in service.
pub async fn taken_out(
    conn: &mut PgConnection,
    name: &str,
    since: Timestamp,
) -> Result<(i64, i64), Error> {
    let row = sqlx::query!(
        r#"SELECT (SELECT count(DISTINCT node_id) FROM alerts WHERE became = 'quarantined' AND name = $1 AND heard_at > $2) AS "taken!",
                  (SELECT count(*) FROM nodes WHERE state = 'in_service') AS "serving!""#,
        name,
        since.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?;
    Ok((row.taken, row.serving))
}
