//! Waivers: gates waived for a node, rack or pool, with the requesting person, the approving person
//! and the end.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::NodeId;
use muster_core::words;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

words! {
    /// The stored state of a waiver. The end time is compared by the reader.
    Consent, "state of a waiver" {
        /// Waiting for a second person.
        Asked = "asked",
        Agreed = "agreed",
        Denied = "denied",
        /// A person ended the waiver early.
        Ended = "ended",
    }
}

/// A waiver with the names of its subject.
#[derive(Clone, Debug)]
pub struct WaiverRow {
    pub id: Uuid,
    pub node: Option<NodeId>,
    pub node_name: Option<String>,
    pub rack_name: Option<String>,
    pub pool_name: Option<String>,
    pub gate: String,
    pub reason: String,
    pub requested_by: String,
    pub requested_at: Timestamp,
    pub until: Timestamp,
    pub state: Consent,
    pub ended_by: Option<String>,
    pub approval: Option<Uuid>,
    pub decided_by: Option<String>,
}

/// A waiver to write.
#[derive(Clone, Debug)]
pub struct NewWaiver<'a> {
    pub id: Uuid,
    pub node: Option<Uuid>,
    pub rack: Option<Uuid>,
    pub pool: Option<Uuid>,
    pub gate: &'a str,
    pub reason: &'a str,
    pub requested_by: &'a str,
    pub person: &'a str,
    pub now: Timestamp,
    pub until: Timestamp,
}

/// A waiver in force on a node.
#[derive(Clone, Debug)]
pub struct ActiveWaiver {
    pub id: Uuid,
    pub gate: String,
    pub reason: String,
    pub requested_by: String,
    pub agreed_by: String,
    pub until: Timestamp,
}

/// Lists the ids of the gates in the suites named by a pool, for admission, in service and as
/// sweep.
pub async fn list_pool_gates(conn: &mut PgConnection, pool: Uuid) -> Result<Vec<String>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT DISTINCT gate ->> 'id' AS "id!"
           FROM object_refs r JOIN objects suite ON suite.id = r.to_id AND suite.kind = 'suite',
                jsonb_array_elements(suite.spec -> 'gates') AS gate
           WHERE r.from_id = $1 ORDER BY 1"#,
        pool,
    )
    .fetch_all(conn)
    .await?)
}

/// Inserts a waiver as requested. The waiver takes effect only after approval.
pub async fn insert(conn: &mut PgConnection, waiver: &NewWaiver<'_>) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO waivers (id, node_id, rack_id, pool_id, gate, reason, requested_by, person, requested_at, until, state)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'asked')",
        waiver.id,
        waiver.node,
        waiver.rack,
        waiver.pool,
        waiver.gate,
        waiver.reason,
        waiver.requested_by,
        waiver.person,
        waiver.now.to_sqlx() as _,
        waiver.until.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Locks and returns one waiver.
pub async fn lock(conn: &mut PgConnection, id: Uuid) -> Result<Option<WaiverRow>, Error> {
    sqlx::query!("SELECT id FROM waivers WHERE id = $1 FOR UPDATE", id)
        .fetch_optional(&mut *conn)
        .await?;
    Ok(list_where(conn, Some(&[id]), None).await?.pop())
}

/// Lists the waivers of a node, of its rack and of the pool claiming the node, newest first. At
/// most 1000.
pub async fn list(conn: &mut PgConnection, node: NodeId) -> Result<Vec<WaiverRow>, Error> {
    list_where(conn, None, Some(node)).await
}

/// Lists waivers by id, newest first. Deleted ids are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<WaiverRow>, Error> {
    list_where(conn, Some(ids), None).await
}

async fn list_where(
    conn: &mut PgConnection,
    ids: Option<&[Uuid]>,
    node: Option<NodeId>,
) -> Result<Vec<WaiverRow>, Error> {
    Ok(sqlx::query_as!(
        WaiverRow,
        r#"SELECT w.id, w.node_id AS "node: NodeId", n.name AS "node_name?", r.name AS "rack_name?", p.name AS "pool_name?", w.gate, w.reason,
                  w.requested_by, w.requested_at, w.until, w.state, w.ended_by, a.id AS "approval?", a.decided_by AS "decided_by?"
           FROM waivers w LEFT JOIN nodes n ON n.id = w.node_id LEFT JOIN objects r ON r.id = w.rack_id LEFT JOIN objects p ON p.id = w.pool_id
                LEFT JOIN approvals a ON a.waiver_id = w.id
           WHERE ($1::uuid[] IS NULL OR w.id = ANY ($1))
             AND ($2::uuid IS NULL OR w.node_id = $2 OR w.rack_id = (SELECT rack_id FROM nodes WHERE id = $2)
                  OR w.pool_id = (SELECT pool_id FROM claims WHERE node_id = $2 AND state <> 'released'))
           ORDER BY w.id DESC LIMIT 1000"#,
        ids,
        node as Option<NodeId>,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists the waivers in force on a node at a time, the one ending last first.
pub async fn list_active(
    conn: &mut PgConnection,
    node: NodeId,
    now: Timestamp,
) -> Result<Vec<ActiveWaiver>, Error> {
    Ok(sqlx::query_as!(
        ActiveWaiver,
        r#"SELECT w.id, w.gate, w.reason, w.requested_by, w.agreed_by AS "agreed_by!", w.until
           FROM waivers w JOIN nodes n ON n.id = $1 LEFT JOIN claims c ON c.node_id = n.id AND c.state <> 'released'
           WHERE w.state = 'agreed' AND w.until > $2 AND (w.node_id = n.id OR w.rack_id = n.rack_id OR w.pool_id = c.pool_id)
           ORDER BY w.until DESC, w.id"#,
        node as NodeId,
        now.to_sqlx() as _,
    )
    .fetch_all(conn)
    .await?)
}

/// Records the decision of the second person. `by` is the approving person; `None` denies the
/// waiver.
pub async fn decide(
    conn: &mut PgConnection,
    id: Uuid,
    by: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE waivers SET state = CASE WHEN $2::text IS NULL THEN 'denied' ELSE 'agreed' END, agreed_by = $2,
                agreed_at = CASE WHEN $2::text IS NULL THEN NULL ELSE $3::timestamptz END
         WHERE id = $1 AND state = 'asked'",
        id,
        by,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends a waiver before its time. `false`: the waiver has already ended or was denied.
pub async fn end(
    conn: &mut PgConnection,
    id: Uuid,
    by: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let ended = sqlx::query!(
        "UPDATE waivers SET state = 'ended', ended_by = $2, ended_at = $3 WHERE id = $1 AND state IN ('asked', 'agreed') AND until > $3",
        id,
        by,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(ended.rows_affected() == 1)
}
