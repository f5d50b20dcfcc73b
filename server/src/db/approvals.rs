//! Requests for approval by a second person, and counts of erasures started by one person alone.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::approvals::ApprovalState;
use muster_core::effects;
use muster_core::ids::{ClaimId, NodeId, ObjectId, OperationId};
use muster_core::lifecycle::state::Action;
use sqlx::PgConnection;
use uuid::Uuid;

use super::waivers::NewWaiver;
use crate::error::Error;

/// A release, waiver, wipe or reinstallation with its request for a second person, open or decided.
#[derive(Clone, Debug)]
pub struct ApprovalRow {
    pub id: Uuid,
    /// For a release: the claim.
    pub claim_name: Option<String>,
    /// Present for all requests except a waiver for a rack or a pool.
    pub node_name: Option<String>,
    pub waiver: Option<Uuid>,
    /// For a release: another node is prepared first. `spare` names the node, if one was chosen.
    pub replaces: bool,
    pub spare: Option<String>,
    /// For a release: the disks are erased at once, without an undo period.
    pub erase_now: bool,
    /// `wipe` or `reinstall`, for a node in one assignment (`epoch`).
    pub action: Option<Action>,
    pub epoch: Option<i64>,
    /// The reason given with the wipe, reinstallation or release.
    pub reason: Option<String>,
    pub because: String,
    pub requested_by: String,
    pub person: String,
    pub requested_at: Timestamp,
    pub expires_at: Timestamp,
    pub state: ApprovalState,
    pub decided_by: Option<String>,
    pub operation: Option<OperationId>,
}

/// A new request for approval of a release.
#[derive(Clone, Debug)]
pub struct NewApproval<'a> {
    pub claim: ClaimId,
    /// Another node is prepared first. `spare` names the node, if one was chosen.
    pub replaces: bool,
    pub spare: Option<&'a str>,
    /// The disks are erased at once, without the period for undoing the release.
    pub erase_now: bool,
    /// The reason given for the release.
    pub reason: Option<&'a str>,
    pub because: &'a str,
    pub requested_by: &'a str,
    pub person: &'a str,
    pub now: Timestamp,
    pub expires_at: Timestamp,
}

/// Requests approval by a second person, or finds the open request of the claim. Returns the
/// request's id, and whether the stored request equals the given one. Only one request can be open
/// for a claim. An expired open request is renewed with the new parameters.
pub async fn ask(
    conn: &mut PgConnection,
    request: &NewApproval<'_>,
) -> Result<(Uuid, bool), Error> {
    let row = sqlx::query!(
        r#"INSERT INTO approvals AS a (id, claim_id, because, requested_by, person, requested_at, expires_at, state, replaces, spare, reason, erase_now)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 'open', $8, $9, $10, $11)
         ON CONFLICT (claim_id) WHERE state = 'open' DO UPDATE
         SET (requested_by, person, requested_at, expires_at, replaces, spare, reason, erase_now) = (
             SELECT CASE WHEN a.expires_at <= $6 THEN excluded.requested_by ELSE a.requested_by END,
                    CASE WHEN a.expires_at <= $6 THEN excluded.person ELSE a.person END,
                    CASE WHEN a.expires_at <= $6 THEN excluded.requested_at ELSE a.requested_at END,
                    CASE WHEN a.expires_at <= $6 THEN excluded.expires_at ELSE a.expires_at END,
                    CASE WHEN a.expires_at <= $6 THEN excluded.replaces ELSE a.replaces END,
                    CASE WHEN a.expires_at <= $6 THEN excluded.spare ELSE a.spare END,
                    CASE WHEN a.expires_at <= $6 THEN excluded.reason ELSE a.reason END,
                    CASE WHEN a.expires_at <= $6 THEN excluded.erase_now ELSE a.erase_now END)
         RETURNING id, (replaces = $8 AND spare IS NOT DISTINCT FROM $9 AND erase_now = $11) AS "same!""#,
        Uuid::now_v7(),
        request.claim as ClaimId,
        request.because,
        request.requested_by,
        request.person,
        request.now.to_sqlx() as _,
        request.expires_at.to_sqlx() as _,
        request.replaces,
        request.spare,
        request.reason,
        request.erase_now,
    )
    .fetch_one(conn)
    .await?;
    Ok((row.id, row.same))
}

/// Requests approval of a waiver and returns the request's id. The request expires when the waiver
/// would end.
pub async fn ask_for_waiver(
    conn: &mut PgConnection,
    waiver: &NewWaiver<'_>,
    because: &str,
) -> Result<Uuid, Error> {
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

/// A new request for approval of erasing a node's disks.
#[derive(Clone, Debug)]
pub struct NewErasure<'a> {
    pub node: NodeId,
    pub action: Action,
    /// The epoch of the node at the time of the request.
    pub epoch: i64,
    pub reason: Option<&'a str>,
    pub because: &'a str,
    pub requested_by: &'a str,
    pub person: &'a str,
    pub now: Timestamp,
    pub expires_at: Timestamp,
}

/// Requests approval of erasing a node's disks, or finds the open request, and returns the
/// request's id. An open request is renewed when expired or made for an earlier assignment of the
/// node.
pub async fn ask_for_erasure(
    conn: &mut PgConnection,
    request: &NewErasure<'_>,
) -> Result<Uuid, Error> {
    Ok(sqlx::query_scalar!(
        "INSERT INTO approvals AS a (id, node_id, wish, epoch, reason, because, requested_by, person, requested_at, expires_at, state)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'open')
         ON CONFLICT (node_id, wish) WHERE state = 'open' AND node_id IS NOT NULL DO UPDATE
         SET (epoch, reason, because, requested_by, person, requested_at, expires_at) = (
             SELECT CASE WHEN old THEN excluded.epoch ELSE a.epoch END, CASE WHEN old THEN excluded.reason ELSE a.reason END,
                    CASE WHEN old THEN excluded.because ELSE a.because END,
                    CASE WHEN old THEN excluded.requested_by ELSE a.requested_by END,
                    CASE WHEN old THEN excluded.person ELSE a.person END,
                    CASE WHEN old THEN excluded.requested_at ELSE a.requested_at END,
                    CASE WHEN old THEN excluded.expires_at ELSE a.expires_at END
             FROM (SELECT a.expires_at <= $9 OR a.epoch <> $4 AS old) AS stands)
         RETURNING id",
        Uuid::now_v7(),
        request.node as NodeId,
        request.action.as_str(),
        request.epoch,
        request.reason,
        request.because,
        request.requested_by,
        request.person,
        request.now.to_sqlx() as _,
        request.expires_at.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}

/// The subject of a request: a claim, a waiver or a node.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub claim: Option<ClaimId>,
    pub waiver: Option<Uuid>,
    pub node: Option<NodeId>,
}

/// Returns the subject of a request.
pub async fn find_subject(conn: &mut PgConnection, id: Uuid) -> Result<Option<Subject>, Error> {
    Ok(sqlx::query_as!(
        Subject,
        r#"SELECT claim_id AS "claim: ClaimId", waiver_id AS waiver, node_id AS "node: NodeId" FROM approvals WHERE id = $1"#,
        id
    )
    .fetch_optional(conn)
    .await?)
}

/// Locks and returns one request. Lock order: the node of the claim first, then the request.
pub async fn lock(conn: &mut PgConnection, id: Uuid) -> Result<Option<ApprovalRow>, Error> {
    Ok(sqlx::query_as!(ApprovalRow, r#"SELECT a.id, c.name AS "claim_name?", n.name AS "node_name?", a.waiver_id AS waiver, a.replaces, a.spare, a.erase_now, a.wish AS action, a.epoch, a.reason, a.because,
                  a.requested_by, a.person, a.requested_at, a.expires_at, a.state, a.decided_by, a.operation_id AS "operation: OperationId"
           FROM approvals a LEFT JOIN claims c ON c.id = a.claim_id LEFT JOIN waivers w ON w.id = a.waiver_id
                LEFT JOIN nodes n ON n.id = coalesce(c.node_id, w.node_id, a.node_id)
           WHERE a.id = $1 FOR UPDATE OF a"#, id,)
        .fetch_optional(conn)
        .await?)
}

/// Lists requests by id. Deleted ids are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<ApprovalRow>, Error> {
    Ok(
        sqlx::query_as!(ApprovalRow, r#"SELECT a.id, c.name AS "claim_name?", n.name AS "node_name?", a.waiver_id AS waiver, a.replaces, a.spare, a.erase_now, a.wish AS action, a.epoch, a.reason, a.because,
                  a.requested_by, a.person, a.requested_at, a.expires_at, a.state, a.decided_by, a.operation_id AS "operation: OperationId"
           FROM approvals a LEFT JOIN claims c ON c.id = a.claim_id LEFT JOIN waivers w ON w.id = a.waiver_id
                LEFT JOIN nodes n ON n.id = coalesce(c.node_id, w.node_id, a.node_id)
           WHERE a.id = ANY ($1) ORDER BY a.id"#, ids,)
            .fetch_all(conn)
            .await?,
    )
}

/// Records a decision, `approved` or `denied`, and the release operation started by the approval.
pub async fn decide(
    conn: &mut PgConnection,
    id: Uuid,
    by: &str,
    state: &str,
    operation: Option<OperationId>,
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

/// Denies the open request of a claim.
pub async fn withdraw(
    conn: &mut PgConnection,
    claim: ClaimId,
    by: &str,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE approvals SET state = 'denied', decided_by = $2, decided_at = $3 WHERE claim_id = $1 AND state = 'open'",
        claim as ClaimId,
        by,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The account that requested an approval, as in events.
#[derive(Clone, Copy, Debug)]
pub enum RequestedBy<'name> {
    /// `token:NAME`.
    Token(&'name str),
    /// `user:NAME`, with all tokens of the person.
    Person(&'name str),
}

impl<'name> RequestedBy<'name> {
    /// Returns the account's name.
    pub fn name(self) -> &'name str {
        match self {
            Self::Token(name) | Self::Person(name) => name,
        }
    }
}

/// An open request of an account.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    pub id: Uuid,
    pub waiver: Option<Uuid>,
    pub node: Option<NodeId>,
    pub requested_by: String,
    pub because: String,
}

/// Lists the requests of an account that are open at a time, by id.
pub async fn list_open(
    conn: &mut PgConnection,
    requested_by: RequestedBy<'_>,
    now: Timestamp,
) -> Result<Vec<OpenRequest>, Error> {
    let (token, person) = match requested_by {
        RequestedBy::Token(name) => (Some(name), None),
        RequestedBy::Person(name) => (None, Some(name)),
    };
    Ok(sqlx::query_as!(
        OpenRequest,
        r#"SELECT a.id, a.waiver_id AS waiver, coalesce(c.node_id, w.node_id, a.node_id) AS "node?: NodeId", a.requested_by, a.because
           FROM approvals a LEFT JOIN claims c ON c.id = a.claim_id LEFT JOIN waivers w ON w.id = a.waiver_id
           WHERE a.state = 'open' AND a.expires_at > $3 AND (a.requested_by = $1 OR a.person = $2) ORDER BY a.id"#,
        token,
        person,
        now.to_sqlx() as _,
    )
    .fetch_all(conn)
    .await?)
}

/// Denies one open request. `false`: the request is already decided.
pub async fn withdraw_one(
    conn: &mut PgConnection,
    id: Uuid,
    by: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE approvals SET state = 'denied', decided_by = $2, decided_at = $3 WHERE id = $1 AND state = 'open'",
        id,
        by,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Counts of operations that erased disks since a time.
#[derive(Clone, Copy, Debug)]
pub struct Erased {
    /// Started by one person, in the browser or with any token created for the person.
    pub by_person: i64,
    /// Affecting nodes of one pool, started by anyone.
    pub of_pool: i64,
}

/// Counts erasing operations since a time, except cancelled ones: releases, wipes and
/// reinstallations. Replacements under way count too, because each will release a node. Root disks
/// written by recoveries count for the pool of the node, and for the person who requested the
/// recovery. Reinstalls of rollouts do not: their number is fixed by the plan. Takes a lock until
/// the end of the transaction, so that two counts never run at once.
pub async fn count_erased(
    conn: &mut PgConnection,
    actor: &str,
    person: &str,
    pool: Option<ObjectId>,
    since: Timestamp,
) -> Result<Erased, Error> {
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtextextended('muster releases', 0))")
        .execute(&mut *conn)
        .await?;
    let kinds: Vec<String> = effects::ERASES
        .iter()
        .map(|action| action.as_str().to_owned())
        .collect();
    Ok(sqlx::query_as!(
        Erased,
        r#"SELECT count(*) FILTER (WHERE o.actor = $1 OR o.actor = $2
                                      OR o.actor IN (SELECT 'token:' || t.name FROM tokens t WHERE t.person = $2))
                      + (SELECT count(*) FROM recoveries r WHERE r.asked AND r.reimaged_at > $4 AND EXISTS (
                             SELECT FROM operations w WHERE w.node_id = r.node_id AND w.kind = 'recover' AND w.created_at <= r.begun_at
                                 AND (w.finished_at IS NULL OR w.finished_at >= r.begun_at)
                                 AND (w.actor = $1 OR w.actor = $2 OR w.actor IN (SELECT 'token:' || t.name FROM tokens t WHERE t.person = $2)))) AS "by_person!",
                  count(*) FILTER (WHERE c.pool_id = $3)
                      + (SELECT count(*) FROM recoveries r JOIN claims held ON held.node_id = r.node_id AND held.state <> 'released'
                         WHERE held.pool_id = $3 AND r.reimaged_at > $4) AS "of_pool!"
           FROM operations o LEFT JOIN claims c ON c.id = o.claim_id
           WHERE (o.kind = ANY ($5) AND o.state <> 'cancelled' AND o.created_at > $4 AND o.rollout_id IS NULL)
              OR (o.kind = 'replace' AND o.finished_at IS NULL)"#,
        actor,
        person,
        pool as Option<ObjectId>,
        since.to_sqlx() as _,
        &kinds,
    )
    .fetch_one(conn)
    .await?)
}
