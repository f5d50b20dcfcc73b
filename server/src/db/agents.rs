//! Agents: one per site at a time, fenced by an epoch.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::agents::AgentRefusal;
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
    /// Clock offset of the agent's machine in milliseconds. Positive values are ahead of the
    /// server.
    pub clock_offset_ms: Option<i64>,
    /// End of validity of the latest certificate. `None`: the agent has not enrolled.
    pub certified_until: Option<jiff_sqlx::Timestamp>,
    /// Counts the enrolments under the agent's name.
    pub generation: i64,
    /// Why every call is refused. `None`: the agent is admitted.
    pub refused: Option<AgentRefusal>,
}

/// The calling agent with all data checked on every call. Read in one query, because thousands of
/// jobs call continuously.
#[derive(Clone, Debug)]
pub struct Caller {
    pub agent: AgentRow,
    pub lease: SiteLease,
    /// Whether the database has the event remembered by the agent.
    pub known: bool,
    /// Whether an unknown event counts without a seal.
    pub bare_marks: bool,
    /// The event shown by the latest call; the nil id for a call without an event.
    pub shown_event: Option<EventId>,
}

/// The agent acting for a site, and the end of its lease. Both are `None` if no agent ever acted
/// for the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteLease {
    pub holder: Option<AgentId>,
    pub until: Option<Timestamp>,
}

/// Returns the agent and site named by a certificate. `heard` is the latest event remembered by the
/// agent. `None`: the agent was removed.
pub async fn find_caller(
    conn: &mut PgConnection,
    agent: AgentId,
    site: ObjectId,
    heard: Option<EventId>,
) -> Result<Option<Caller>, Error> {
    let row = sqlx::query!(
        r#"SELECT a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name, a.epoch, a.instance, a.version,
                  a.last_seen AS "last_seen: jiff_sqlx::Timestamp", a.clock_offset_ms, a.generation, a.refused, a.bare_marks,
                  a.certified_until AS "certified_until: jiff_sqlx::Timestamp", l.agent_id AS "holder?: AgentId", l.until AS "until?: jiff_sqlx::Timestamp",
                  a.shown_event AS "shown_event: EventId",
                  ($3::uuid IS NULL OR EXISTS (SELECT FROM events WHERE id = $3) OR EXISTS (SELECT FROM event_marks WHERE event_id = $3)) AS "known!"
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
            refused: row.refused,
        },
        lease: SiteLease {
            holder: row.holder,
            until: row.until.map(|at| at.to_jiff()),
        },
        known: row.known,
        bare_marks: row.bare_marks,
        shown_event: row.shown_event,
    }))
}

/// Records the event shown by an agent. The mark of a removed event stays while an agent shows the
/// event. The statement never waits: while the row is locked, the next call records the event.
pub async fn set_shown_event(
    conn: &mut PgConnection,
    agent: AgentId,
    event: EventId,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE agents SET shown_event = $2 WHERE id IN (SELECT id FROM agents WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED)",
        agent as AgentId,
        event as EventId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists the agents of the given sites, or of all sites, at most 1000.
pub async fn list(conn: &mut PgConnection, sites: Option<&[Uuid]>) -> Result<Vec<AgentRow>, Error> {
    Ok(sqlx::query_as!(AgentRow, r#"SELECT a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name, a.epoch, a.instance, a.version, a.last_seen, a.clock_offset_ms,
                  a.certified_until, a.generation, a.refused
           FROM agents a JOIN objects s ON s.id = a.site_id WHERE $1::uuid[] IS NULL OR a.site_id = ANY ($1) ORDER BY a.name LIMIT 1000"#,
        sites,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists agents by id. Deleted ids are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<AgentRow>, Error> {
    Ok(sqlx::query_as!(AgentRow, r#"SELECT a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name, a.epoch, a.instance, a.version, a.last_seen, a.clock_offset_ms,
                  a.certified_until, a.generation, a.refused
           FROM agents a JOIN objects s ON s.id = a.site_id WHERE a.id = ANY ($1)"#, ids,)
        .fetch_all(conn)
        .await?)
}

/// Returns one agent of a site, by name or id, locked until the transaction ends.
pub async fn find_for_update(
    conn: &mut PgConnection,
    site: ObjectId,
    key: &str,
) -> Result<Option<AgentRow>, Error> {
    Ok(sqlx::query_as!(AgentRow, r#"SELECT a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name, a.epoch, a.instance, a.version, a.last_seen, a.clock_offset_ms,
                  a.certified_until, a.generation, a.refused
           FROM agents a JOIN objects s ON s.id = a.site_id WHERE a.site_id = $1 AND (a.name = $2 OR a.id = $3) FOR UPDATE OF a"#,
        site as ObjectId,
        key,
        Uuid::parse_str(key).ok(),
    )
    .fetch_optional(conn)
    .await?)
}

/// Deletes an agent and thereby revokes its certificates. The agent's leased jobs must be queued
/// again first.
///
/// # Errors
/// When a job is still leased to the agent.
pub async fn delete(conn: &mut PgConnection, agent: AgentId) -> Result<(), Error> {
    sqlx::query!("DELETE FROM agents WHERE id = $1", agent as AgentId)
        .execute(conn)
        .await?;
    Ok(())
}

/// Refuses every call of an agent from now on. The raised epoch also ends calls that wait. `false`:
/// the agent was refused already, or removed.
pub async fn refuse(
    conn: &mut PgConnection,
    agent: AgentId,
    why: AgentRefusal,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE agents SET refused = $2, epoch = epoch + 1, instance = NULL WHERE id = $1 AND refused IS NULL",
        agent as AgentId,
        why.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Records that an agent shows seals. An unknown event without a seal counts no longer.
pub async fn end_bare_marks(conn: &mut PgConnection, agent: AgentId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE agents SET bare_marks = false WHERE id = $1",
        agent as AgentId
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records the first call of an agent process and returns the epoch. The same instance keeps the
/// epoch; another instance raises the epoch.
pub async fn record_start(
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

/// Returns the epoch of an agent's current process and locks the agent's row until the transaction
/// ends. No other process can start or lock the row before. `None`: the agent was removed.
pub async fn lock_epoch(conn: &mut PgConnection, agent: AgentId) -> Result<Option<i64>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT epoch FROM agents WHERE id = $1 FOR NO KEY UPDATE",
        agent as AgentId
    )
    .fetch_optional(conn)
    .await?)
}

/// Deletes the agents of a site enrolled by `muster dev` for processes that have ended. Their
/// leased jobs are queued again.
pub async fn delete_dev(conn: &mut PgConnection, site: ObjectId) -> Result<(), Error> {
    super::jobs::requeue_dev(conn, site).await?;
    sqlx::query!(
        "DELETE FROM agents WHERE site_id = $1 AND name LIKE 'dev-%'",
        site as ObjectId
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records the time of an agent's call. Does not wait for a lock: a transaction holding the row
/// belongs to another call of the same agent.
pub async fn record_call(
    conn: &mut PgConnection,
    agent: AgentId,
    now: Timestamp,
) -> Result<(), Error> {
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

/// Records an agent's clock offset. `false`: another call changed the offset since `before` was
/// read, and the given offset is not stored.
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

/// The result of a request for a site's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The calling agent acts for the site, as before or as the first.
    Held,
    /// The calling agent acts for the site from now on. The former agent did not call for too long.
    TakenFrom(AgentId),
    /// Another agent acts for the site. The calling agent is on standby.
    Others,
}

/// The times deciding about a site's lease.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTimes {
    pub now: Timestamp,
    /// End of the renewed lease, counted from the latest answer that the agent is known to have
    /// received.
    pub until: Timestamp,
    /// A lease of the same agent ending after this time need not be renewed yet.
    pub fresh: Timestamp,
    /// A lease ended before this time may be taken by another agent.
    pub over: Timestamp,
}

/// Returns the current lease of a site.
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

/// Renews a site's lease for its agent, or takes an expired lease from another agent. `lease` is
/// the lease as read just before.
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
    // An agent without received answers must not take a lease, because the renewal would fail.
    if holder != Some(agent)
        && (times.until <= times.now || (holder.is_some() && ends >= times.over))
    {
        return Ok(Hold::Others);
    }
    // Written only if the row is unchanged since the read, so that two concurrent agents never both
    // get the lease.
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
            // Later calls of the former agent carry an old epoch and are rejected.
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

/// Returns the id of a site by name.
pub async fn find_site(conn: &mut PgConnection, name: &str) -> Result<Option<ObjectId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT id AS "id: ObjectId" FROM objects WHERE kind = 'site' AND name = $1"#,
        name
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists the subnets of a site as declared: id, name and spec.
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

/// Lists every address reservation of a site. IPv6 addresses are left out.
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

/// Returns the node and site of a MAC.
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
