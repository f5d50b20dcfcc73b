//! Agents: one per site at a time, fenced by an epoch.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{AgentId, EventId, NodeId, ObjectId};
use muster_core::values::Mac;
use sqlx::PgConnection;
use sqlx::types::Json;
use sqlx::types::ipnet::IpNet;
use sqlx::types::mac_address::MacAddress;
use uuid::Uuid;

use crate::error::Error;

/// An agent as stored.
#[derive(Clone, Debug)]
pub struct AgentRow {
    pub id: AgentId,
    pub name: String,
    pub site: ObjectId,
    pub site_name: String,
    pub epoch: i64,
    pub instance: Option<String>,
    pub version: Option<String>,
    pub last_seen: Option<jiff_sqlx::Timestamp>,
    /// How far its machine's clock is ahead, in milliseconds.
    pub clock_offset_ms: Option<i64>,
    /// Until when its newest certificate counts; none before it enrolled.
    pub certified_until: Option<jiff_sqlx::Timestamp>,
    /// Counts who was enrolled under its name.
    pub generation: i64,
}

/// Who calls, and what every call of an agent is held against: read in one go, for each of thousands of jobs calls.
#[derive(Clone, Debug)]
pub struct Caller {
    pub agent: AgentRow,
    pub lease: SiteLease,
    /// Whether the database has the event that the agent remembers.
    pub known: bool,
}

/// Who acts for a site, and until when; nobody where nobody ever did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteLease {
    pub holder: Option<AgentId>,
    pub until: Option<Timestamp>,
}

/// The agent that a certificate names, with its site; `heard` is the event it remembers. None where the agent was removed.
pub async fn find_caller(
    conn: &mut PgConnection,
    agent: AgentId,
    site: ObjectId,
    heard: Option<EventId>,
) -> Result<Option<Caller>, Error> {
    let row = sqlx::query!(
        r#"SELECT a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name, a.epoch, a.instance, a.version,
                  a.last_seen AS "last_seen: jiff_sqlx::Timestamp", a.clock_offset_ms, a.generation,
                  a.certified_until AS "certified_until: jiff_sqlx::Timestamp", l.agent_id AS "holder?: AgentId", l.until AS "until?: jiff_sqlx::Timestamp",
                  ($3::uuid IS NULL OR EXISTS (SELECT FROM events WHERE id = $3)) AS "known!"
           FROM agents a JOIN objects s ON s.id = a.site_id LEFT JOIN site_leases l ON l.site_id = a.site_id WHERE a.id = $1 AND a.site_id = $2"#,
        agent as AgentId,
        site as ObjectId,
        heard as Option<EventId>,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Caller {
        agent: AgentRow {
            id: row.id,
            name: row.name,
            site: row.site,
            site_name: row.site_name,
            epoch: row.epoch,
            instance: row.instance,
            version: row.version,
            last_seen: row.last_seen,
            clock_offset_ms: row.clock_offset_ms,
            certified_until: row.certified_until,
            generation: row.generation,
        },
        lease: SiteLease {
            holder: row.holder,
            until: row.until.map(|at| at.to_jiff()),
        },
        known: row.known,
    }))
}

/// The agents of these sites, or of every one.
pub async fn list(conn: &mut PgConnection, sites: Option<&[Uuid]>) -> Result<Vec<AgentRow>, Error> {
    Ok(sqlx::query_as!(
        AgentRow,
        r#"SELECT a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name, a.epoch, a.instance, a.version, a.last_seen, a.clock_offset_ms,
                  a.certified_until, a.generation
           FROM agents a JOIN objects s ON s.id = a.site_id WHERE $1::uuid[] IS NULL OR a.site_id = ANY ($1) ORDER BY a.name LIMIT 1000"#,
        sites,
    )
    .fetch_all(conn)
    .await?)
}

/// Agents by id; ids that are gone are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<AgentRow>, Error> {
    Ok(sqlx::query_as!(
        AgentRow,
        r#"SELECT a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name, a.epoch, a.instance, a.version, a.last_seen, a.clock_offset_ms,
                  a.certified_until, a.generation
           FROM agents a JOIN objects s ON s.id = a.site_id WHERE a.id = ANY ($1)"#,
        ids,
    )
    .fetch_all(conn)
    .await?)
}

/// One agent of a site, by name or id, locked until the transaction ends.
pub async fn find_for_update(
    conn: &mut PgConnection,
    site: ObjectId,
    key: &str,
) -> Result<Option<AgentRow>, Error> {
    Ok(sqlx::query_as!(
        AgentRow,
        r#"SELECT a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name, a.epoch, a.instance, a.version, a.last_seen, a.clock_offset_ms,
                  a.certified_until, a.generation
           FROM agents a JOIN objects s ON s.id = a.site_id WHERE a.site_id = $1 AND (a.name = $2 OR a.id = $3) FOR UPDATE OF a"#,
        site as ObjectId,
        key,
        Uuid::parse_str(key).ok(),
    )
    .fetch_optional(conn)
    .await?)
}

/// Forgets an agent: its certificates are worth nothing from now on. What it had leased must be put back first.
///
/// # Errors
/// When the database fails or a job is still leased to it.
pub async fn delete(conn: &mut PgConnection, agent: AgentId) -> Result<(), Error> {
    sqlx::query!("DELETE FROM agents WHERE id = $1", agent as AgentId)
        .execute(conn)
        .await?;
    Ok(())
}

/// A process says hello: the same instance keeps its epoch, another one raises it. Returns the epoch.
pub async fn hello(
    conn: &mut PgConnection,
    agent: AgentId,
    instance: &str,
    version: &str,
    now: Timestamp,
) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(
        "UPDATE agents SET epoch = CASE WHEN instance IS NOT DISTINCT FROM $2 THEN epoch ELSE epoch + 1 END,
                instance = $2, version = $3, last_seen = $4
         WHERE id = $1 RETURNING epoch",
        agent as AgentId,
        instance,
        version,
        now.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}

/// The epoch of an agent's current process: until the transaction ends no other one is welcomed, and nobody else holds it. None where it was removed.
pub async fn hold(conn: &mut PgConnection, agent: AgentId) -> Result<Option<i64>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT epoch FROM agents WHERE id = $1 FOR NO KEY UPDATE",
        agent as AgentId
    )
    .fetch_optional(conn)
    .await?)
}

/// Forgets the agents of a site that `muster dev` enrolled for processes that are gone; their jobs are queued again.
pub async fn delete_dev(conn: &mut PgConnection, site: ObjectId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE jobs SET state = 'queued', leased_by = NULL, lease_until = NULL
         WHERE state = 'leased' AND leased_by IN (SELECT id FROM agents WHERE site_id = $1 AND name LIKE 'dev-%')",
        site as ObjectId,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "DELETE FROM agents WHERE site_id = $1 AND name LIKE 'dev-%'",
        site as ObjectId
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Notes that an agent was heard. Waits for nobody: whoever has the row in hand was heard of too.
pub async fn seen(conn: &mut PgConnection, agent: AgentId, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE agents SET last_seen = $2
         WHERE id = (SELECT id FROM agents WHERE id = $1 AND (last_seen IS NULL OR last_seen < $2) FOR NO KEY UPDATE SKIP LOCKED)",
        agent as AgentId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Notes how far an agent's clock is ahead; whether it was noted, which it is not where somebody else noted something since `before` was read.
pub async fn set_clock_offset(
    conn: &mut PgConnection,
    agent: AgentId,
    before: Option<i64>,
    offset_ms: i64,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE agents SET clock_offset_ms = $3 WHERE id = $1 AND clock_offset_ms IS NOT DISTINCT FROM $2",
        agent as AgentId,
        before,
        offset_ms,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Who acts for a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// This agent, as before or because nobody did.
    Held,
    /// This agent from now on: the one before was not heard for too long.
    TakenFrom(AgentId),
    /// Another one; this one stands by.
    Others,
}

/// The times that decide about a site's lease.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTimes {
    pub now: Timestamp,
    /// How long it is kept by what its agent is known to have heard.
    pub until: Timestamp,
    /// One of its own that ends after this need not be written again yet.
    pub fresh: Timestamp,
    /// One that ended before this may be taken.
    pub over: Timestamp,
}

/// A site's lease as it is now.
pub async fn find_lease(conn: &mut PgConnection, site: ObjectId) -> Result<SiteLease, Error> {
    let row = sqlx::query!(
        r#"SELECT agent_id AS "agent: AgentId", until FROM site_leases WHERE site_id = $1"#,
        site as ObjectId
    )
    .fetch_optional(conn)
    .await?;
    let (holder, until) = row.map(|row| (row.agent, row.until.to_jiff())).unzip();
    Ok(SiteLease { holder, until })
}

/// Keeps a site's lease, read a moment ago, for its agent, or takes it where its holder's is over.
pub async fn hold_site(
    conn: &mut PgConnection,
    site: ObjectId,
    agent: AgentId,
    lease: SiteLease,
    times: LeaseTimes,
) -> Result<Hold, Error> {
    let (holder, ends) = (lease.holder, lease.until.unwrap_or(times.over));
    if holder == Some(agent) && ends > times.fresh {
        return Ok(Hold::Held);
    }
    // One that does not hear does not take what it could not hold.
    if holder != Some(agent)
        && (times.until <= times.now || (holder.is_some() && ends >= times.over))
    {
        return Ok(Hold::Others);
    }
    // Written only if it is still as it was read: two that want it at once do not both get it.
    let done = sqlx::query!(
        "INSERT INTO site_leases AS l (site_id, agent_id, until) VALUES ($1, $2, $3)
         ON CONFLICT (site_id) DO UPDATE SET agent_id = $2, until = CASE WHEN l.agent_id = $2 THEN GREATEST(l.until, $3) ELSE $3 END
         WHERE l.agent_id = $4 AND (l.agent_id = $2 OR l.until < $5)",
        site as ObjectId,
        agent as AgentId,
        times.until.to_sqlx() as _,
        holder as Option<AgentId>,
        times.over.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    match holder {
        _ if done.rows_affected() == 0 => Ok(Hold::Others),
        Some(former) if former != agent => {
            // Whatever the former still says is of an epoch that is over.
            sqlx::query!(
                "UPDATE agents SET epoch = epoch + 1, instance = NULL WHERE id = $1",
                former as AgentId
            )
            .execute(conn)
            .await?;
            Ok(Hold::TakenFrom(former))
        }
        _ => Ok(Hold::Held),
    }
}

/// A site by name.
pub async fn find_site(conn: &mut PgConnection, name: &str) -> Result<Option<ObjectId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: ObjectId" FROM objects WHERE kind = 'site' AND name = $1"#,
        name
    )
    .fetch_optional(conn)
    .await?)
}

/// A subnet of a site, as declared.
pub async fn list_subnets(
    conn: &mut PgConnection,
    site: ObjectId,
) -> Result<Vec<(ObjectId, String, serde_json::Value)>, Error> {
    let rows = sqlx::query!(
        r#"SELECT o.id AS "id: ObjectId", o.name, o.spec AS "spec: Json<serde_json::Value>" FROM objects o
           JOIN object_refs r ON r.from_id = o.id AND r.to_id = $1 WHERE o.kind = 'subnet' ORDER BY o.name"#,
        site as ObjectId,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.id, row.name, row.spec.0))
        .collect())
}

/// A node's boot MAC and address on a subnet.
#[derive(Clone, Debug)]
pub struct ReservationRow {
    pub subnet: ObjectId,
    pub node: NodeId,
    pub name: String,
    pub mac: Mac,
    pub address: Ipv4Addr,
}

/// Every reservation of a site.
pub async fn list_reservations(
    conn: &mut PgConnection,
    site: ObjectId,
) -> Result<Vec<ReservationRow>, Error> {
    let rows = sqlx::query!(
        r#"SELECT m.subnet_id AS "subnet!: ObjectId", n.id AS "node: NodeId", n.name, m.mac AS "mac: MacAddress", m.address AS "address!: IpNet"
           FROM node_macs m JOIN nodes n ON n.id = m.node_id WHERE n.site_id = $1 AND m.address IS NOT NULL ORDER BY m.mac"#,
        site as ObjectId,
    )
    .fetch_all(conn)
    .await?;
    let reservation = |address: IpNet, subnet, node, name, mac: MacAddress| match address {
        IpNet::V4(v4) => Some(ReservationRow {
            subnet,
            node,
            name,
            mac: Mac(mac.bytes()),
            address: v4.addr(),
        }),
        IpNet::V6(_) => None,
    };
    Ok(rows
        .into_iter()
        .filter_map(|row| reservation(row.address, row.subnet, row.node, row.name, row.mac))
        .collect())
}

/// The node that owns a MAC.
pub async fn find_node_by_mac(
    conn: &mut PgConnection,
    mac: Mac,
) -> Result<Option<(NodeId, ObjectId)>, Error> {
    let row = sqlx::query!(
        r#"SELECT n.id AS "id: NodeId", n.site_id AS "site: ObjectId" FROM node_macs m JOIN nodes n ON n.id = m.node_id WHERE m.mac = $1"#,
        MacAddress::new(mac.0),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| (row.id, row.site)))
}

/// An unknown machine was seen: it becomes a discovered node, named by its MAC.
pub async fn insert_discovered(
    conn: &mut PgConnection,
    site: ObjectId,
    mac: Mac,
    now: Timestamp,
) -> Result<NodeId, Error> {
    let id = NodeId::new();
    let name = format!("unknown-{}", hex::encode(mac.0));
    sqlx::query!(
        "INSERT INTO nodes (id, name, created_at, updated_at, spec, site_id, power, power_person, state, entered_at, due_at)
         SELECT $1, $2, $3, $3,
                jsonb_build_object('site', o.name, 'power', '{\"manual\": {\"person\": \"nobody yet\"}}'::jsonb,
                                   'macs', jsonb_build_array(jsonb_build_object('mac', $5::text)), 'accept', false),
                o.id, 'manual', 'nobody yet', 'discovered', $3, $3
         FROM objects o WHERE o.id = $4",
        id as NodeId,
        name,
        now.to_sqlx() as _,
        site as ObjectId,
        mac.to_string(),
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "INSERT INTO node_macs (mac, node_id) VALUES ($1, $2)",
        MacAddress::new(mac.0),
        id as NodeId
    )
    .execute(conn)
    .await?;
    Ok(id)
}
