//! New keys of rotations, as taken by agents, live images and installed systems.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{AgentId, JobId, NodeId};
use sqlx::PgConnection;

use crate::error::Error;

/// The ids of the new keys that an agent gives to live images.
#[derive(Clone, Debug, Default)]
pub struct AgentKeys {
    pub ssh_ca: Option<String>,
    pub permit: Option<String>,
}

/// Records the new keys of an agent. The time of the first start with these keys is kept.
pub async fn record_agent(
    conn: &mut PgConnection,
    agent: AgentId,
    keys: &AgentKeys,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO agent_keys AS k (agent_id, ssh_ca, permit, taken_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (agent_id) DO UPDATE SET ssh_ca = $2, permit = $3, taken_at = $4
         WHERE k.ssh_ca IS DISTINCT FROM $2 OR k.permit IS DISTINCT FROM $3",
        agent as AgentId,
        keys.ssh_ca,
        keys.permit,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// An agent or a node that lacks a new key.
#[derive(Clone, Debug)]
pub struct LackingRow {
    pub name: String,
    pub site: String,
}

/// Lists the agents without a new SSH user CA, 1000 at most.
pub async fn list_agents_without_ca(
    conn: &mut PgConnection,
    ca: &str,
) -> Result<Vec<LackingRow>, Error> {
    Ok(sqlx::query_as!(
        LackingRow,
        "SELECT a.name, s.name AS site FROM agents a JOIN objects s ON s.id = a.site_id
         WHERE NOT EXISTS (SELECT FROM agent_keys k WHERE k.agent_id = a.id AND k.ssh_ca = $1) ORDER BY a.name LIMIT 1000",
        ca
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the agents without a new permit key, 1000 at most.
pub async fn list_agents_without_permit(
    conn: &mut PgConnection,
    permit: &str,
) -> Result<Vec<LackingRow>, Error> {
    Ok(sqlx::query_as!(
        LackingRow,
        "SELECT a.name, s.name AS site FROM agents a JOIN objects s ON s.id = a.site_id
         WHERE NOT EXISTS (SELECT FROM agent_keys k WHERE k.agent_id = a.id AND k.permit = $1) ORDER BY a.name LIMIT 1000",
        permit
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the nodes whose live image booted before the agents of the site had the present keys, 1000
/// at most.
pub async fn list_live_before(conn: &mut PgConnection) -> Result<Vec<LackingRow>, Error> {
    Ok(sqlx::query_as!(
        LackingRow,
        "SELECT n.name, s.name AS site FROM nodes n JOIN objects s ON s.id = n.site_id
         WHERE n.live_host_key IS NOT NULL AND NOT EXISTS (
             SELECT FROM jobs j WHERE j.node_id = n.id AND j.step = 'boot_live' AND j.state = 'succeeded' AND j.started_at > (
                 SELECT max(k.taken_at) FROM agent_keys k JOIN agents a ON a.id = k.agent_id WHERE a.site_id = n.site_id))
         ORDER BY n.name LIMIT 1000"
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the nodes with an installed system that does not trust a new SSH user CA, 1000 at most. An
/// image under way has the former CA alone.
pub async fn list_installed_without_ca(
    conn: &mut PgConnection,
    ca: &str,
) -> Result<Vec<LackingRow>, Error> {
    Ok(sqlx::query_as!(
        LackingRow,
        "SELECT n.name, s.name AS site FROM nodes n JOIN objects s ON s.id = n.site_id
         WHERE (n.os_host_key IS NOT NULL AND NOT EXISTS (
             SELECT FROM node_ssh_cas c WHERE c.node_id = n.id AND c.trusted = $1 AND c.host_key = n.os_host_key))
             OR EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id AND j.step = 'write_image' AND j.state = 'leased')
         ORDER BY n.name LIMIT 1000",
        ca
    )
    .fetch_all(conn)
    .await?)
}

/// Records an order that gives a node the new SSH user CA.
pub async fn offer_ca(
    conn: &mut PgConnection,
    node: NodeId,
    job: JobId,
    ca: &str,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO node_ssh_cas (node_id, job_id, offered) VALUES ($1, $2, $3)
         ON CONFLICT (node_id) DO UPDATE SET job_id = $2, offered = $3",
        node as NodeId,
        job as JobId,
        ca,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Forgets the new SSH user CA of a node: before an order that writes the former CA alone, or after
/// a refused login. An adopted system is no subject of such orders, and may trust the new CA alone.
/// Returns whether the node was recorded to trust the new CA.
pub async fn withdraw_ca(conn: &mut PgConnection, node: NodeId) -> Result<bool, Error> {
    let trusted = sqlx::query_scalar!(
        "DELETE FROM node_ssh_cas c USING nodes n
         WHERE n.id = c.node_id AND c.node_id = $1 AND n.root_disk_serial IS NOT NULL RETURNING c.trusted",
        node as NodeId
    )
    .fetch_optional(conn)
    .await?;
    Ok(trusted.flatten().is_some())
}

/// Records the success of the order with the new SSH user CA. `adopts`: the order was an adoption.
/// The sshd of an adopted system, without a disk by an image, reads no file of a converge.
pub async fn accept_ca(
    conn: &mut PgConnection,
    node: NodeId,
    job: JobId,
    adopts: bool,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE node_ssh_cas c SET trusted = c.offered, host_key = n.os_host_key
         FROM nodes n WHERE n.id = c.node_id AND c.node_id = $1 AND c.job_id = $2 AND (n.root_disk_serial IS NOT NULL OR $3)",
        node as NodeId,
        job as JobId,
        adopts,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns whether the installed system of a node trusts an SSH user CA.
pub async fn is_ca_trusted(conn: &mut PgConnection, node: NodeId, ca: &str) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM node_ssh_cas c JOIN nodes n ON n.id = c.node_id AND n.os_host_key = c.host_key
                          WHERE c.node_id = $1 AND c.trusted = $2) AS "trusted!""#,
        node as NodeId,
        ca,
    )
    .fetch_one(conn)
    .await?)
}
