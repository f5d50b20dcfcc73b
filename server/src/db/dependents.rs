//! The nodes that depend on a declared object.

use std::net::IpAddr;

use ipnet::IpNet;
use muster_core::ids::ObjectId;
use sqlx::PgConnection;

use super::nodes::PowerKind;
use crate::error::Error;

/// An address of a node on a subnet.
#[derive(Clone, Debug)]
pub struct ReservedRow {
    pub node: String,
    pub address: IpAddr,
}

/// Lists the addresses of nodes on a subnet, by name.
pub async fn list_reserved(
    conn: &mut PgConnection,
    subnet: ObjectId,
) -> Result<Vec<ReservedRow>, Error> {
    let rows = sqlx::query!(
        r#"SELECT n.name, m.address AS "address!: IpNet" FROM node_macs m JOIN nodes n ON n.id = m.node_id WHERE m.subnet_id = $1 ORDER BY n.name"#,
        subnet as ObjectId,
    )
    .fetch_all(conn)
    .await?;
    let reserved = |name, address: IpNet| ReservedRow {
        node: name,
        address: address.addr(),
    };
    Ok(rows
        .into_iter()
        .map(|row| reserved(row.name, row.address))
        .collect())
}

/// A node at a unit of a rack.
#[derive(Clone, Debug)]
pub struct PlacedRow {
    pub node: String,
    pub unit: i32,
}

/// Lists the nodes of a rack above a unit, by name.
pub async fn list_above_unit(
    conn: &mut PgConnection,
    rack: ObjectId,
    unit: i32,
) -> Result<Vec<PlacedRow>, Error> {
    Ok(sqlx::query_as!(
        PlacedRow,
        r#"SELECT name AS node, rack_unit AS "unit!" FROM nodes WHERE rack_id = $1 AND rack_unit > $2 ORDER BY name"#,
        rack as ObjectId,
        unit,
    )
    .fetch_all(conn)
    .await?)
}

/// A node with a BMC behind a credential.
#[derive(Clone, Debug)]
pub struct BmcNodeRow {
    pub node: String,
    pub power: PowerKind,
}

/// Lists the nodes with a credential for the BMC, by name.
pub async fn list_nodes_by_bmc_credential(
    conn: &mut PgConnection,
    credential: ObjectId,
) -> Result<Vec<BmcNodeRow>, Error> {
    let rows = sqlx::query!(
        "SELECT name, power FROM nodes WHERE bmc_credential_id = $1 ORDER BY name",
        credential as ObjectId,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| BmcNodeRow {
            node: row.name,
            power: row.power,
        })
        .collect())
}

/// Lists the names of nodes with a rack, hardware profile, BMC credential or subnet, ordered by
/// name, and counts all of them.
pub async fn list_nodes_of(
    conn: &mut PgConnection,
    object: ObjectId,
    limit: i64,
) -> Result<(Vec<String>, i64), Error> {
    let names = sqlx::query_scalar!(
        "SELECT name FROM nodes WHERE $1 IN (rack_id, profile_id, bmc_credential_id)
             OR id IN (SELECT node_id FROM node_macs WHERE subnet_id = $1) ORDER BY name LIMIT $2",
        object as ObjectId,
        limit,
    )
    .fetch_all(&mut *conn)
    .await?;
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM nodes WHERE $1 IN (rack_id, profile_id, bmc_credential_id)
             OR id IN (SELECT node_id FROM node_macs WHERE subnet_id = $1)"#,
        object as ObjectId,
    )
    .fetch_one(conn)
    .await?;
    Ok((names, count))
}

/// A MAC that the agent does not serve, or serves with an unusable address.
#[derive(Clone, Debug)]
pub struct UnservedRow {
    pub node: String,
    pub mac: String,
    pub subnet: Option<String>,
    pub address: Option<String>,
}

/// Lists the MACs of no machine, and the addresses that no node can have, by name. Earlier versions
/// stored both.
pub async fn list_unserved(conn: &mut PgConnection, limit: i64) -> Result<Vec<UnservedRow>, Error> {
    Ok(sqlx::query_as!(
        UnservedRow,
        r#"SELECT n.name AS node, m.mac::text AS "mac!", s.name AS "subnet?", host(m.address) AS "address?"
           FROM node_macs m JOIN nodes n ON n.id = m.node_id LEFT JOIN objects s ON s.id = m.subnet_id
           WHERE m.mac = '00:00:00:00:00:00' OR (m.mac & '01:00:00:00:00:00') = '01:00:00:00:00:00'
              OR NOT m.address << (s.spec ->> 'network')::inet
              OR host(m.address) IN (host(network((s.spec ->> 'network')::inet)), host(broadcast((s.spec ->> 'network')::inet)),
                                     s.spec ->> 'agent_address', s.spec ->> 'gateway')
              OR m.address BETWEEN (s.spec #>> '{dynamic_range,first}')::inet AND (s.spec #>> '{dynamic_range,last}')::inet
           ORDER BY n.name, m.mac LIMIT $1"#,
        limit,
    )
    .fetch_all(conn)
    .await?)
}
