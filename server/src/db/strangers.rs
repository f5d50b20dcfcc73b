//! Machines that discovered themselves: the nodes made for them, and the counts of the present
//! minute of each site.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{NodeId, ObjectId};
use muster_core::values::Mac;
use sqlx::PgConnection;
use sqlx::types::mac_address::MacAddress;

use crate::error::Error;

/// A stranger that no person has acted on.
#[derive(Clone, Debug)]
pub struct StrangerRow {
    pub id: NodeId,
    pub name: String,
}

/// The counts of a site in a minute.
#[derive(Clone, Debug)]
pub struct MinuteRow {
    pub site: ObjectId,
    pub site_name: String,
    pub began_at: Timestamp,
    /// Strangers recorded as nodes.
    pub recorded: i64,
    /// Sightings of unknown machines above the limit of the minute, not recorded.
    pub refused: i64,
    /// Strangers forgotten, because the site has too many.
    pub forgotten: i64,
    /// Events about strangers and about machines of other sites.
    pub events: i64,
    /// Events left out, because the minute had too many.
    pub untold: i64,
}

/// Inserts a discovered node for an unknown machine. The name is made from the MAC. `None`: another
/// node has the name.
pub async fn insert(
    conn: &mut PgConnection,
    site: ObjectId,
    mac: Mac,
    now: Timestamp,
) -> Result<Option<NodeId>, Error> {
    let id = NodeId::new();
    let name = format!("unknown-{}", hex::encode(mac.0));
    let inserted = sqlx::query!(
        "INSERT INTO nodes (id, name, created_at, updated_at, spec, site_id, power, power_person, state, entered_at, due_at)
         SELECT $1, $2, $3, $3,
                jsonb_build_object('site', o.name, 'power', '{\"manual\": {\"person\": \"nobody yet\"}}'::jsonb,
                                   'macs', jsonb_build_array(jsonb_build_object('mac', $5::text)), 'accept', false),
                o.id, 'manual', 'nobody yet', 'discovered', $3, $3
         FROM objects o WHERE o.id = $4 ON CONFLICT ON CONSTRAINT nodes_name_key DO NOTHING",
        id as NodeId,
        name,
        now.to_sqlx() as _,
        site as ObjectId,
        mac.to_string(),
    )
    .execute(&mut *conn)
    .await?;
    if inserted.rows_affected() == 0 {
        return Ok(None);
    }
    sqlx::query!(
        "INSERT INTO node_macs (mac, node_id) VALUES ($1, $2)",
        MacAddress::new(mac.0),
        id as NodeId
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "INSERT INTO strangers (node_id, site_id, seen_at) VALUES ($1, $2, $3)",
        id as NodeId,
        site as ObjectId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(Some(id))
}

/// Records that a stranger was seen. `false`: the node is no stranger, or a person has acted on the
/// node.
pub async fn touch(conn: &mut PgConnection, node: NodeId, now: Timestamp) -> Result<bool, Error> {
    let touched = sqlx::query!(
        "UPDATE strangers s SET seen_at = $2 FROM nodes n
         WHERE s.node_id = $1 AND n.id = s.node_id AND n.state = 'discovered' AND n.generation = 1",
        node as NodeId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(touched.rows_affected() == 1)
}

/// Locks the strangers of a site beyond the `kept` most recently seen, at most `limit`. Nodes
/// locked by another transaction are left out.
pub async fn lock_excess(
    conn: &mut PgConnection,
    site: ObjectId,
    kept: i64,
    limit: i64,
) -> Result<Vec<StrangerRow>, Error> {
    Ok(sqlx::query_as!(
        StrangerRow,
        r#"SELECT n.id AS "id!: NodeId", n.name AS "name!" FROM nodes n
           WHERE n.id IN (SELECT u.node_id FROM untouched_strangers u WHERE u.site_id = $1
                          ORDER BY u.seen_at DESC, u.node_id DESC LIMIT $3 OFFSET $2)
             AND n.state = 'discovered' AND n.generation = 1 AND n.wish IS NULL
           ORDER BY n.id FOR UPDATE SKIP LOCKED"#,
        site as ObjectId,
        kept,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Locks the strangers with any of the MACs, except the node `own`. Nodes locked by another
/// transaction are left out.
pub async fn lock_by_macs(
    conn: &mut PgConnection,
    macs: &[Mac],
    own: Option<NodeId>,
) -> Result<Vec<StrangerRow>, Error> {
    let macs: Vec<String> = macs.iter().map(Mac::to_string).collect();
    Ok(sqlx::query_as!(
        StrangerRow,
        r#"SELECT n.id AS "id!: NodeId", n.name AS "name!" FROM nodes n
           WHERE n.id IN (SELECT u.node_id FROM untouched_strangers u JOIN node_macs m ON m.node_id = u.node_id
                          WHERE m.mac = ANY ($1::text[]::macaddr[]))
             AND n.id IS DISTINCT FROM $2 AND n.state = 'discovered' AND n.generation = 1 AND n.wish IS NULL
           ORDER BY n.id FOR UPDATE SKIP LOCKED"#,
        &macs,
        own as Option<NodeId>,
    )
    .fetch_all(conn)
    .await?)
}

/// Counts the events of a node's boots after a time: the alarms, or all others. Only the latest 200
/// events are searched.
pub async fn count_boot_events(
    conn: &mut PgConnection,
    node: NodeId,
    alarms: bool,
    after: Timestamp,
) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM (SELECT kind, at FROM events WHERE node_id = $1 ORDER BY seq DESC LIMIT 200) latest
           WHERE latest.kind LIKE 'boot.%' AND (latest.kind IN ('boot.fetched_twice', 'boot.rogue_dhcp')) = $3 AND latest.at > $2"#,
        node as NodeId,
        after.to_sqlx() as _,
        alarms,
    )
    .fetch_one(conn)
    .await?)
}

/// Locks the present minute of a site, and begins the first. All reports of a site are serialised.
pub async fn lock_minute(
    conn: &mut PgConnection,
    site: ObjectId,
    now: Timestamp,
) -> Result<MinuteRow, Error> {
    sqlx::query!(
        "INSERT INTO stranger_minutes (site_id, began_at) VALUES ($1, $2) ON CONFLICT (site_id) DO NOTHING",
        site as ObjectId,
        now.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    Ok(sqlx::query_as!(
        MinuteRow,
        r#"SELECT m.site_id AS "site!: ObjectId", o.name AS "site_name!", m.began_at AS "began_at!", m.recorded AS "recorded!", m.refused AS "refused!",
                  m.forgotten AS "forgotten!", m.events AS "events!", m.untold AS "untold!"
           FROM stranger_minutes m JOIN objects o ON o.id = m.site_id WHERE m.site_id = $1 FOR UPDATE OF m"#,
        site as ObjectId,
    )
    .fetch_one(conn)
    .await?)
}

/// Lists the sites with counts of a minute begun before a time, at most `limit`.
pub async fn list_ended(
    conn: &mut PgConnection,
    before: Timestamp,
    limit: i64,
) -> Result<Vec<ObjectId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT site_id AS "site!: ObjectId" FROM stranger_minutes
           WHERE began_at <= $1 AND recorded + refused + forgotten + events + untold > 0 ORDER BY began_at LIMIT $2"#,
        before.to_sqlx() as _,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Adds the strangers that a server of the version before has recorded, at most 1000. That version
/// marks none of its discovered nodes.
pub async fn add_missed(conn: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO strangers (node_id, site_id, seen_at)
         SELECT n.id, n.site_id, n.created_at FROM nodes n
         WHERE n.state = 'discovered' AND n.power = 'manual' AND n.power_person = 'nobody yet' AND n.name LIKE 'unknown-%' AND n.generation = 1
           AND NOT EXISTS (SELECT FROM strangers s WHERE s.node_id = n.id)
         ORDER BY n.id LIMIT 1000 ON CONFLICT (node_id) DO NOTHING"
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Stores the counts of a minute.
pub async fn set_minute(conn: &mut PgConnection, minute: &MinuteRow) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE stranger_minutes SET began_at = $2, recorded = $3, refused = $4, forgotten = $5, events = $6, untold = $7 WHERE site_id = $1",
        minute.site as ObjectId,
        minute.began_at.to_sqlx() as _,
        minute.recorded,
        minute.refused,
        minute.forgotten,
        minute.events,
        minute.untold,
    )
    .execute(conn)
    .await?;
    Ok(())
}
