//! Boot MACs of nodes, and the address of each MAC on a subnet.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use muster_core::ids::{NodeId, ObjectId};
use muster_core::values::Mac;
use sqlx::PgConnection;
use sqlx::types::mac_address::MacAddress;
use uuid::Uuid;

use crate::error::Error;

/// An address reserved for a node.
#[derive(Clone, Debug)]
pub struct AddressRow {
    pub node: NodeId,
    pub mac: Mac,
    pub subnet: Option<String>,
    pub address: Option<IpAddr>,
}

/// A boot MAC with address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacRow {
    pub mac: Mac,
    pub lease: Option<(ObjectId, Ipv4Addr)>,
}

/// Lists the boot MACs of nodes, with addresses.
pub async fn list(conn: &mut PgConnection, nodes: &[NodeId]) -> Result<Vec<AddressRow>, Error> {
    let ids: Vec<Uuid> = nodes.iter().map(|id| id.0).collect();
    let rows = sqlx::query!(
        r#"SELECT m.node_id AS "node: NodeId", m.mac, s.name AS "subnet?", m.address
           FROM node_macs m LEFT JOIN objects s ON s.id = m.subnet_id WHERE m.node_id = ANY($1) ORDER BY m.mac"#,
        &ids,
    )
    .fetch_all(conn)
    .await?;
    let rows = rows.into_iter().map(|row| AddressRow {
        node: row.node,
        mac: Mac(row.mac.bytes()),
        subnet: row.subnet,
        address: row.address.map(|net| net.addr()),
    });
    Ok(rows.collect())
}

/// Replaces the boot MACs of a node.
///
/// # Errors
/// When a MAC or address is taken.
pub async fn set(conn: &mut PgConnection, node: NodeId, macs: &[MacRow]) -> Result<(), Error> {
    sqlx::query!("DELETE FROM node_macs WHERE node_id = $1", node as NodeId)
        .execute(&mut *conn)
        .await?;
    for mac in macs {
        sqlx::query!(
            "INSERT INTO node_macs (mac, node_id, subnet_id, address) VALUES ($1, $2, $3, $4)",
            MacAddress::new(mac.mac.0),
            node as NodeId,
            mac.lease.map(|(subnet, _)| subnet) as Option<ObjectId>,
            mac.lease
                .map(|(_, address)| IpNet::from(IpAddr::V4(address))) as Option<IpNet>,
        )
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

/// Lists the addresses in use on a subnet, each with the MAC.
pub async fn list_taken(
    conn: &mut PgConnection,
    subnet: ObjectId,
) -> Result<Vec<(Mac, IpAddr)>, Error> {
    let rows = sqlx::query!(
        r#"SELECT mac, address AS "address!" FROM node_macs WHERE subnet_id = $1"#,
        subnet as ObjectId
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (Mac(row.mac.bytes()), row.address.addr()))
        .collect())
}
