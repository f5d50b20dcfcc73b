//! Holders of natural keys: the object already holding the serial, address or name requested by a
//! write.

use muster_core::ids::ObjectId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// The object holding a key.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The kind as in `/v1/plan`: `node`, `claim`, `rack`; also `agent` and `token`.
    pub kind: String,
    pub id: Uuid,
    pub name: String,
    /// For an agent: the id and name of its site.
    pub site: Option<(Uuid, String)>,
}

/// Returns the holder of a key after a constraint violation. The key has the values as reported by
/// Postgres: `10.78.0.1, 0, `. `None`: the holder was deleted meanwhile, or the constraint is not
/// about a key known to people.
pub async fn find(
    conn: &mut PgConnection,
    constraint: &str,
    key: &str,
) -> Result<Option<Holder>, Error> {
    let (table, _) = constraint.split_once('_').unwrap_or((constraint, ""));
    match table {
        "nodes" | "node" => find_node(conn, constraint, key).await,
        "claims" => find_claim(conn, constraint, key).await,
        "objects" => {
            let Some((kind, name)) = key.split_once(", ") else {
                return Ok(None);
            };
            let id = sqlx::query_scalar!(
                "SELECT id FROM objects WHERE kind = $1 AND name = $2",
                kind,
                name
            );
            let id = id.fetch_optional(conn).await?;
            Ok(id.map(|id| Holder {
                kind: kind.to_owned(),
                id,
                name: name.to_owned(),
                site: None,
            }))
        }
        "tokens" => {
            let id = sqlx::query_scalar!("SELECT id FROM tokens WHERE name = $1", key)
                .fetch_optional(conn)
                .await?;
            Ok(id.map(|id| Holder {
                kind: "token".into(),
                id,
                name: key.to_owned(),
                site: None,
            }))
        }
        "agents" => {
            let found = sqlx::query!(
                "SELECT a.id, s.id AS site, s.name AS site_name FROM agents a JOIN objects s ON s.id = a.site_id WHERE a.name = $1",
                key
            );
            let held = |id, site| Holder {
                kind: "agent".into(),
                id,
                name: key.to_owned(),
                site: Some(site),
            };
            Ok(found
                .fetch_optional(conn)
                .await?
                .map(|row| held(row.id, (row.site, row.site_name))))
        }
        _ => Ok(None),
    }
}

/// Returns another subnet of the same site with overlapping addresses. Takes a lock until the
/// transaction ends, so that two checks never run at once.
pub async fn find_overlapping(
    conn: &mut PgConnection,
    subnet: ObjectId,
) -> Result<Option<String>, Error> {
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtextextended('muster subnets', 0))")
        .execute(&mut *conn)
        .await?;
    let other = sqlx::query_scalar!(
        "SELECT o.name FROM objects s JOIN object_refs mine ON mine.from_id = s.id AND mine.pointer = '/spec/site'
             JOIN object_refs theirs ON theirs.to_id = mine.to_id AND theirs.pointer = '/spec/site' AND theirs.from_id <> s.id
             JOIN objects o ON o.id = theirs.from_id AND o.kind = 'subnet'
         WHERE s.id = $1 AND (o.spec ->> 'network')::inet && (s.spec ->> 'network')::inet ORDER BY o.name LIMIT 1",
        subnet as ObjectId,
    );
    Ok(other.fetch_optional(conn).await?)
}

/// Returns the node holding a key of a constraint on nodes or their MACs.
async fn find_node_id(
    conn: &mut PgConnection,
    constraint: &str,
    key: &str,
) -> Result<Option<Uuid>, Error> {
    let mut parts = key.splitn(3, ", ");
    let mut part = || parts.next().unwrap_or_default();
    Ok(match constraint {
        "nodes_name_key" => {
            sqlx::query_scalar!("SELECT id FROM nodes WHERE name = $1", key)
                .fetch_optional(conn)
                .await?
        }
        "nodes_serial_key" => {
            sqlx::query_scalar!("SELECT id FROM nodes WHERE serial = $1", key)
                .fetch_optional(conn)
                .await?
        }
        "nodes_smbios_uuid_key" => {
            let found = sqlx::query_scalar!(
                "SELECT id FROM nodes WHERE smbios_uuid = $1::text::uuid",
                key
            );
            found.fetch_optional(conn).await?
        }
        // A trigger reports the other node's id as the key.
        "nodes_bmc_system_named" => {
            let found = sqlx::query_scalar!("SELECT id FROM nodes WHERE id = $1::text::uuid", key);
            found.fetch_optional(conn).await?
        }
        "nodes_bmc_key" => {
            let found = sqlx::query_scalar!(
                "SELECT id FROM nodes WHERE bmc_address = $1::text::inet AND coalesce(bmc_system, '') = $3
                     AND (CASE WHEN bmc_port IN (443, 623) THEN 0 ELSE bmc_port END) = $2::text::integer",
                part(),
                part(),
                part(),
            );
            found.fetch_optional(conn).await?
        }
        "nodes_console_key" => {
            let found = sqlx::query_scalar!(
                "SELECT id FROM nodes WHERE console_address = $1::text::inet AND console_port = $2::text::integer",
                part(),
                part(),
            );
            found.fetch_optional(conn).await?
        }
        "node_macs_mac_key" => {
            let found = sqlx::query_scalar!(
                "SELECT node_id FROM node_macs WHERE mac = $1::text::macaddr",
                key
            );
            found.fetch_optional(conn).await?
        }
        "node_macs_address_key" => {
            let found = sqlx::query_scalar!(
                "SELECT node_id FROM node_macs WHERE subnet_id = $1::text::uuid AND address = $2::text::inet",
                part(),
                part(),
            );
            found.fetch_optional(conn).await?
        }
        _ => None,
    })
}

async fn find_node(
    conn: &mut PgConnection,
    constraint: &str,
    key: &str,
) -> Result<Option<Holder>, Error> {
    let Some(id) = find_node_id(conn, constraint, key).await? else {
        return Ok(None);
    };
    let name = sqlx::query_scalar!("SELECT name FROM nodes WHERE id = $1", id)
        .fetch_optional(conn)
        .await?;
    Ok(name.map(|name| Holder {
        kind: "node".into(),
        id,
        name,
        site: None,
    }))
}

async fn find_claim(
    conn: &mut PgConnection,
    constraint: &str,
    key: &str,
) -> Result<Option<Holder>, Error> {
    let found = sqlx::query!(
        "SELECT id, name FROM claims WHERE state <> 'released'
             AND CASE $1 WHEN 'claims_name_key' THEN name = $2 WHEN 'claims_node_key' THEN node_id::text = $2
                         WHEN 'claims_replacement_key' THEN state = 'bound' AND replaces::text = $2 ELSE false END",
        constraint,
        key,
    );
    let held = |id, name| Holder {
        kind: "claim".into(),
        id,
        name,
        site: None,
    };
    Ok(found
        .fetch_optional(conn)
        .await?
        .map(|row| held(row.id, row.name)))
}
