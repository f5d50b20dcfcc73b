//! Cautions: periods in which the database is older than other systems remember (a restored backup,
//! for example), until an administrator confirms.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{AgentId, EventId, NodeId, ObjectId};
use muster_core::wire::node::Failure;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// An unconfirmed caution.
#[derive(Clone, Debug)]
pub struct CautionRow {
    pub id: Uuid,
    pub because: String,
    pub noticed_at: Timestamp,
    /// Whether the caution holds everywhere. Otherwise the caution holds at the sites of its
    /// witnesses.
    pub whole_fleet: bool,
}

/// A system that remembers more than the database.
#[derive(Clone, Debug)]
pub struct WitnessRow {
    /// The id of the agent or the node; for a replica, the nil id.
    pub witness: Uuid,
    /// `None`: a replica.
    pub site: Option<ObjectId>,
    /// The agent that made the call.
    pub agent: Option<AgentId>,
    /// The event missing from the database.
    pub heard: Option<EventId>,
    pub proved: bool,
    /// The event that reported the witness.
    pub event: EventId,
}

/// Returns the open caution. The database allows at most one.
pub async fn find_open(conn: &mut PgConnection) -> Result<Option<CautionRow>, Error> {
    Ok(sqlx::query_as!(
        CautionRow,
        "SELECT id, because, noticed_at, whole_fleet FROM cautions WHERE confirmed_at IS NULL"
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns and locks the open caution.
pub async fn lock_open(conn: &mut PgConnection) -> Result<Option<CautionRow>, Error> {
    Ok(sqlx::query_as!(
        CautionRow,
        "SELECT id, because, noticed_at, whole_fleet FROM cautions WHERE confirmed_at IS NULL FOR UPDATE"
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the open caution, if the caution holds at a site.
pub async fn find_at_site(
    conn: &mut PgConnection,
    site: ObjectId,
) -> Result<Option<CautionRow>, Error> {
    Ok(sqlx::query_as!(
        CautionRow,
        "SELECT id, because, noticed_at, whole_fleet FROM cautions c WHERE confirmed_at IS NULL
           AND (whole_fleet OR EXISTS (SELECT FROM caution_witnesses w WHERE w.caution_id = c.id AND w.site_id = $1))",
        site as ObjectId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the open caution, if the caution holds at the site of a node.
pub async fn find_for_node(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Option<CautionRow>, Error> {
    Ok(sqlx::query_as!(
        CautionRow,
        "SELECT id, because, noticed_at, whole_fleet FROM cautions c WHERE confirmed_at IS NULL
           AND (whole_fleet OR EXISTS (SELECT FROM caution_witnesses w JOIN nodes n ON n.site_id = w.site_id
                                       WHERE w.caution_id = c.id AND n.id = $1))",
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists the names of the sites with a witness of a caution: of the given sites, or of all sites.
pub async fn list_sites(
    conn: &mut PgConnection,
    caution: Uuid,
    visible: Option<&[Uuid]>,
) -> Result<Vec<String>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT name FROM objects o WHERE ($2::uuid[] IS NULL OR id = ANY ($2))
           AND EXISTS (SELECT FROM caution_witnesses w WHERE w.caution_id = $1 AND w.site_id = o.id) ORDER BY name",
        caution,
        visible,
    )
    .fetch_all(conn)
    .await?)
}

/// Opens a caution. Also raises the revision counter of cluster member lists above any revision
/// already sent. Otherwise an agent with a list from before the restore would take the older list
/// for the newer one. `false`: a caution is already open.
pub async fn open(
    conn: &mut PgConnection,
    because: &str,
    whole_fleet: bool,
    now: Timestamp,
) -> Result<bool, Error> {
    let opened = sqlx::query!(
        "INSERT INTO cautions (id, because, noticed_at, whole_fleet) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        Uuid::now_v7(),
        because,
        now.to_sqlx() as _,
        whole_fleet,
    )
    .execute(&mut *conn)
    .await?;
    if opened.rows_affected() == 0 {
        return Ok(false);
    }
    // The time in microseconds exceeds the number of lists ever made, and grows until any later
    // caution.
    sqlx::query!(
        "SELECT setval('cluster_revisions', GREATEST(nextval('cluster_revisions'), $1))",
        now.as_microsecond(),
    )
    .fetch_one(conn)
    .await?;
    Ok(true)
}

/// Voids the permits of a site, or of the whole fleet. The clock before the restore may have
/// differed, so permits of open jobs are voided even when expired.
pub async fn void_permits(
    conn: &mut PgConnection,
    site: Option<ObjectId>,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE permits p SET void = true
         WHERE NOT void AND (expires_at > $1 OR EXISTS (SELECT FROM jobs j WHERE j.permit_id = p.id AND j.state IN ('queued', 'leased')))
           AND ($2::uuid IS NULL OR EXISTS (SELECT FROM nodes n WHERE n.id = p.node_id AND n.site_id = $2))",
        now.to_sqlx() as _,
        site as Option<ObjectId>,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Extends a caution to the whole fleet.
pub async fn extend_to_fleet(conn: &mut PgConnection, caution: Uuid) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE cautions SET whole_fleet = true WHERE id = $1",
        caution
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists the witnesses of a caution.
pub async fn list_witnesses(
    conn: &mut PgConnection,
    caution: Uuid,
) -> Result<Vec<WitnessRow>, Error> {
    Ok(sqlx::query_as!(
        WitnessRow,
        r#"SELECT witness, site_id AS "site: ObjectId", agent_id AS "agent: AgentId", heard AS "heard: EventId", proved, event_id AS "event: EventId"
           FROM caution_witnesses WHERE caution_id = $1 ORDER BY seen_at, witness"#,
        caution,
    )
    .fetch_all(conn)
    .await?)
}

/// Records a witness of a caution, or the later proof of a witness.
pub async fn insert_witness(
    conn: &mut PgConnection,
    caution: Uuid,
    row: &WitnessRow,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO caution_witnesses (caution_id, witness, site_id, agent_id, heard, proved, seen_at, event_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (caution_id, witness) DO UPDATE SET heard = $5, proved = $6, seen_at = $7, event_id = $8",
        caution,
        row.witness,
        row.site as Option<ObjectId>,
        row.agent as Option<AgentId>,
        row.heard as Option<EventId>,
        row.proved,
        now.to_sqlx() as _,
        row.event as EventId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes the unproved witnesses of an agent. `false`: there are none.
pub async fn remove_witnesses(
    conn: &mut PgConnection,
    caution: Uuid,
    agent: AgentId,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "DELETE FROM caution_witnesses WHERE caution_id = $1 AND agent_id = $2 AND NOT proved",
        caution,
        agent as AgentId,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Returns the event that reported a lost event, if a confirmed caution settled the loss.
pub async fn find_settled(
    conn: &mut PgConnection,
    heard: EventId,
) -> Result<Option<EventId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT w.event_id AS "event: EventId" FROM caution_witnesses w JOIN cautions c ON c.id = w.caution_id
           WHERE w.heard = $1 AND c.confirmed_at IS NOT NULL LIMIT 1"#,
        heard as EventId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Confirms and ends a caution. `false`: the given caution is not the open one.
pub async fn confirm(
    conn: &mut PgConnection,
    id: Uuid,
    by: &str,
    note: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE cautions SET confirmed_at = $2, confirmed_by = $3, note = $4 WHERE id = $1 AND confirmed_at IS NULL",
        id,
        now.to_sqlx() as _,
        by,
        note,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Fails the open jobs with void permits, so that new jobs are created under new permits, and makes
/// waiting nodes due now.
pub async fn begin_anew(
    conn: &mut PgConnection,
    failure: &Failure,
    now: Timestamp,
) -> Result<(), Error> {
    // Locks the nodes first and in order of id, the lock order used everywhere.
    sqlx::query!(
        "SELECT id FROM nodes WHERE id IN (SELECT node_id FROM jobs WHERE permit_id IS NOT NULL AND state IN ('queued', 'leased'))
         ORDER BY id FOR UPDATE"
    )
    .fetch_all(&mut *conn)
    .await?;
    super::jobs::fail_void(conn, failure, now).await?;
    sqlx::query!(
        "UPDATE nodes SET due_at = $1 WHERE due_at > $1",
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns whether an event exists in this database, or was removed as old. `false` means that the
/// event was written to another or a newer copy.
pub async fn is_known_event(conn: &mut PgConnection, event: EventId) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM events WHERE id = $1) OR EXISTS (SELECT FROM event_marks WHERE event_id = $1) AS "known!""#,
        event as EventId
    )
    .fetch_one(conn)
    .await?)
}

/// Returns the latest event. `None`: the database is new.
pub async fn latest_event(conn: &mut PgConnection) -> Result<Option<EventId>, Error> {
    Ok(
        sqlx::query_scalar!(r#"SELECT id AS "id: EventId" FROM events ORDER BY seq DESC LIMIT 1"#)
            .fetch_optional(conn)
            .await?,
    )
}
