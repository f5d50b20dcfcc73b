//! What a second person must agree to, and how much one person has done alone.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{ClaimId, OperationId};
use sqlx::PgConnection;
use uuid::Uuid;

use super::waivers::NewWaiver;
use crate::error::Error;

/// A release or a waiver that waits for a second person, or waited.
#[derive(Clone, Debug)]
pub struct ApprovalRow {
    pub id: Uuid,
    /// Of a release.
    pub claim_name: Option<String>,
    /// Of a release, or of a waiver for one node.
    pub node_name: Option<String>,
    pub waiver: Option<Uuid>,
    pub because: String,
    pub requested_by: String,
    pub person: String,
    pub requested_at: Timestamp,
    pub expires_at: Timestamp,
    pub state: String,
    pub decided_by: Option<String>,
    pub operation: Option<OperationId>,
}

/// A request to write.
#[derive(Clone, Debug)]
pub struct NewApproval<'a> {
    pub claim: ClaimId,
    pub because: &'a str,
    pub requested_by: &'a str,
    pub person: &'a str,
    pub now: Timestamp,
    pub expires_at: Timestamp,
}

/// Asks for a second person, or finds that it was asked; the request's id. A request whose time is over is asked anew.
///
/// # Errors
/// When the database fails.
pub async fn ask(conn: &mut PgConnection, request: &NewApproval<'_>) -> Result<Uuid, Error> {
    Ok(sqlx::query_scalar!(
        "INSERT INTO approvals AS a (id, claim_id, because, requested_by, person, requested_at, expires_at, state)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 'open')
         ON CONFLICT (claim_id) WHERE state = 'open' DO UPDATE
         SET (requested_by, person, requested_at, expires_at) = (
             SELECT CASE WHEN a.expires_at <= $6 THEN excluded.requested_by ELSE a.requested_by END,
                    CASE WHEN a.expires_at <= $6 THEN excluded.person ELSE a.person END,
                    CASE WHEN a.expires_at <= $6 THEN excluded.requested_at ELSE a.requested_at END,
                    CASE WHEN a.expires_at <= $6 THEN excluded.expires_at ELSE a.expires_at END)
         RETURNING id",
        Uuid::now_v7(),
        request.claim as ClaimId,
        request.because,
        request.requested_by,
        request.person,
        request.now.to_sqlx() as _,
        request.expires_at.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}

/// Asks for a second person for a waiver; the request's id. It waits as long as the waiver would hold.
///
/// # Errors
/// When the database fails.
pub async fn ask_for_waiver(conn: &mut PgConnection, waiver: &NewWaiver<'_>, because: &str) -> Result<Uuid, Error> {
    let id = Uuid::now_v7();
    sqlx::query!(
        "INSERT INTO approvals (id, waiver_id, because, requested_by, person, requested_at, expires_at, state)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 'open')",
        id,
        waiver.id,
        because,
        waiver.requested_by,
        waiver.person,
        waiver.now.to_sqlx() as _,
        waiver.until.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(id)
}

/// What a request is about: a claim, or a waiver.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub claim: Option<ClaimId>,
    pub waiver: Option<Uuid>,
}

/// What a request is about.
///
/// # Errors
/// When the database fails.
pub async fn find_subject(conn: &mut PgConnection, id: Uuid) -> Result<Option<Subject>, Error> {
    Ok(sqlx::query_as!(
        Subject,
        r#"SELECT claim_id AS "claim: ClaimId", waiver_id AS waiver FROM approvals WHERE id = $1"#,
        id
    )
    .fetch_optional(conn)
    .await?)
}

/// One request, locked; after its claim's node, as everybody locks them.
///
/// # Errors
/// When the database fails.
pub async fn lock(conn: &mut PgConnection, id: Uuid) -> Result<Option<ApprovalRow>, Error> {
    Ok(sqlx::query_as!(
        ApprovalRow,
        r#"SELECT a.id, c.name AS "claim_name?", n.name AS "node_name?", a.waiver_id AS waiver, a.because, a.requested_by, a.person,
                  a.requested_at, a.expires_at, a.state, a.decided_by, a.operation_id AS "operation: OperationId"
           FROM approvals a LEFT JOIN claims c ON c.id = a.claim_id LEFT JOIN waivers w ON w.id = a.waiver_id
                LEFT JOIN nodes n ON n.id = coalesce(c.node_id, w.node_id)
           WHERE a.id = $1 FOR UPDATE OF a"#,
        id,
    )
    .fetch_optional(conn)
    .await?)
}

/// Requests that wait, oldest first: of these nodes, or of all.
///
/// # Errors
/// When the database fails.
pub async fn list_open(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    now: Timestamp,
) -> Result<Vec<ApprovalRow>, Error> {
    Ok(sqlx::query_as!(
        ApprovalRow,
        r#"SELECT a.id, c.name AS "claim_name?", n.name AS "node_name?", a.waiver_id AS waiver, a.because, a.requested_by, a.person,
                  a.requested_at, a.expires_at, a.state, a.decided_by, a.operation_id AS "operation: OperationId"
           FROM approvals a LEFT JOIN claims c ON c.id = a.claim_id LEFT JOIN waivers w ON w.id = a.waiver_id
                LEFT JOIN nodes n ON n.id = coalesce(c.node_id, w.node_id)
           WHERE a.state = 'open' AND a.expires_at > $1 AND (c.state = 'bound' OR w.state = 'asked') AND ($2::uuid[] IS NULL OR n.id = ANY ($2))
           ORDER BY a.requested_at, a.id LIMIT 1000"#,
        now.to_sqlx() as _,
        nodes,
    )
    .fetch_all(conn)
    .await?)
}

/// Writes a decision down; `approved`, with the release it began where it is one, or `denied`.
///
/// # Errors
/// When the database fails.
pub async fn decide(
    conn: &mut PgConnection,
    id: Uuid,
    by: &str,
    (state, operation): (&str, Option<OperationId>),
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE approvals SET state = $5, decided_by = $2, operation_id = $3, decided_at = $4 WHERE id = $1",
        id,
        by,
        operation as Option<OperationId>,
        now.to_sqlx() as _,
        state,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Releases since a time.
#[derive(Clone, Copy, Debug)]
pub struct Released {
    /// By one person, in a browser and with every token made for them.
    pub by_person: i64,
    /// Of one pool's nodes, by anybody.
    pub of_pool: i64,
}

/// Counts releases that were not undone. Whoever counts before releasing does so alone, until its transaction ends.
///
/// # Errors
/// When the database fails.
pub async fn count_released(
    conn: &mut PgConnection,
    actor: &str,
    person: &str,
    claim: ClaimId,
    since: Timestamp,
) -> Result<Released, Error> {
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtextextended('muster releases', 0))").execute(&mut *conn).await?;
    Ok(sqlx::query_as!(
        Released,
        r#"SELECT count(*) FILTER (WHERE o.actor = $1 OR o.actor = $2
                                      OR o.actor IN (SELECT 'token:' || t.name FROM tokens t WHERE t.person = $2)) AS "by_person!",
                  count(*) FILTER (WHERE c.pool_id = (SELECT pool_id FROM claims WHERE id = $3)) AS "of_pool!"
           FROM operations o JOIN claims c ON c.id = o.claim_id
           WHERE o.kind = 'release' AND o.state <> 'cancelled' AND o.created_at > $4"#,
        actor,
        person,
        claim as ClaimId,
        since.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}
