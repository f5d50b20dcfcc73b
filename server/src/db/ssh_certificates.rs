//! SSH user certificates of orders, until their end.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{AgentId, JobId, NodeId};
use sqlx::PgConnection;

use crate::error::Error;

/// A new certificate.
#[derive(Clone, Copy, Debug)]
pub struct NewCertificate {
    pub serial: i64,
    pub job: JobId,
    pub attempt: i32,
    pub node: NodeId,
    pub issued: Timestamp,
    /// `None`: the certificate has no end.
    pub ends: Option<Timestamp>,
}

/// Stores a certificate under the agent with the job's lease.
pub async fn insert(conn: &mut PgConnection, certificate: &NewCertificate) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO ssh_certificates (serial, job_id, attempt, node_id, agent_id, issued_at, ends_at)
         VALUES ($1, $2, $3, $4, (SELECT leased_by FROM jobs WHERE id = $2), $5, $6)",
        certificate.serial,
        certificate.job as JobId,
        certificate.attempt,
        certificate.node as NodeId,
        certificate.issued.to_sqlx() as _,
        certificate.ends.map(|at| at.to_sqlx()) as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns whether the order of an attempt carried a certificate without an end.
pub async fn is_endless(conn: &mut PgConnection, job: JobId, attempt: i32) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM ssh_certificates WHERE job_id = $1 AND attempt = $2 AND ends_at IS NULL) AS "endless!""#,
        job as JobId,
        attempt,
    )
    .fetch_one(conn)
    .await?)
}

/// Marks the certificates of a job after a refused login. `false`: no further certificate of the
/// job has an end, so another attempt meets the same refusal.
pub async fn mark_refused(conn: &mut PgConnection, job: JobId) -> Result<bool, Error> {
    let marked = sqlx::query!(
        "UPDATE ssh_certificates SET refused = true WHERE job_id = $1 AND ends_at IS NOT NULL AND NOT refused",
        job as JobId,
    )
    .execute(conn)
    .await?;
    Ok(marked.rows_affected() > 0)
}

/// Returns whether a login to the node was refused with a certificate that has not ended by now.
pub async fn is_refused(
    conn: &mut PgConnection,
    node: NodeId,
    now: Timestamp,
) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM ssh_certificates WHERE node_id = $1 AND refused AND ends_at > $2) AS "refused!""#,
        node as NodeId,
        now.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}

/// A certificate before its end.
#[derive(Clone, Debug)]
pub struct OpenCertificate {
    pub serial: i64,
    pub node: String,
    pub ends_at: Option<jiff_sqlx::Timestamp>,
}

/// Lists at most `limit` open certificates of an agent's orders, the newest first.
pub async fn list_open(
    conn: &mut PgConnection,
    agent: AgentId,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<OpenCertificate>, Error> {
    Ok(sqlx::query_as!(
        OpenCertificate,
        r#"SELECT c.serial, n.name AS node, c.ends_at FROM ssh_certificates c JOIN nodes n ON n.id = c.node_id
           WHERE c.agent_id = $1 AND (c.ends_at IS NULL OR c.ends_at > $2) ORDER BY c.issued_at DESC, c.serial LIMIT $3"#,
        agent as AgentId,
        now.to_sqlx() as _,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Revokes the open certificates of an agent's orders.
pub async fn revoke(conn: &mut PgConnection, agent: AgentId, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE ssh_certificates SET revoked_at = $2 WHERE agent_id = $1 AND revoked_at IS NULL AND (ends_at IS NULL OR ends_at > $2)",
        agent as AgentId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A revoked certificate before its end.
#[derive(Clone, Copy, Debug)]
pub struct RevokedCertificate {
    pub serial: i64,
    /// The installed system of the node refuses the certificate.
    pub held: bool,
}

/// Lists at most `limit` revoked certificates of a node, the newest first.
pub async fn list_revoked(
    conn: &mut PgConnection,
    node: NodeId,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<RevokedCertificate>, Error> {
    Ok(sqlx::query_as!(
        RevokedCertificate,
        r#"SELECT c.serial, COALESCE(c.held_host_key = n.os_host_key, false) AS "held!" FROM ssh_certificates c JOIN nodes n ON n.id = c.node_id
           WHERE c.node_id = $1 AND c.revoked_at IS NOT NULL AND (c.ends_at IS NULL OR c.ends_at > $2) ORDER BY c.issued_at DESC, c.serial LIMIT $3"#,
        node as NodeId,
        now.to_sqlx() as _,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// A list of revoked certificates in an order.
#[derive(Clone, Copy, Debug)]
pub struct SentList<'a> {
    pub node: NodeId,
    pub job: JobId,
    pub attempt: i32,
    pub serials: &'a [i64],
}

/// Records the order with a list. The outcome of the order tells whether the node has the list.
pub async fn note_sent(conn: &mut PgConnection, list: SentList<'_>) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE ssh_certificates SET sent_job = $2, sent_attempt = $3 WHERE node_id = $1 AND serial = ANY ($4)",
        list.node as NodeId,
        list.job as JobId,
        list.attempt,
        list.serials,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records that the installed system refuses the certificates in the list of an order. Returns the
/// number of certificates that the system accepted before.
pub async fn note_held(conn: &mut PgConnection, job: JobId, attempt: i32) -> Result<u64, Error> {
    let held = sqlx::query!(
        "UPDATE ssh_certificates c SET held_host_key = n.os_host_key FROM nodes n
         WHERE n.id = c.node_id AND c.sent_job = $1 AND c.sent_attempt = $2 AND c.held_host_key IS DISTINCT FROM n.os_host_key",
        job as JobId,
        attempt,
    )
    .execute(conn)
    .await?;
    Ok(held.rows_affected())
}

/// Returns the number of nodes whose installed system accepts a revoked certificate.
pub async fn count_accepting(conn: &mut PgConnection, now: Timestamp) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT count(DISTINCT c.node_id) AS "count!" FROM ssh_certificates c JOIN nodes n ON n.id = c.node_id
           WHERE c.revoked_at IS NOT NULL AND (c.ends_at IS NULL OR c.ends_at > $1) AND n.os_host_key IS NOT NULL
             AND c.held_host_key IS DISTINCT FROM n.os_host_key"#,
        now.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}

/// A node whose installed system accepts revoked certificates.
#[derive(Clone, Debug)]
pub struct AcceptingNode {
    pub node: String,
    pub certificates: i64,
}

/// Lists at most `limit` nodes whose installed system accepts revoked certificates, by name.
pub async fn list_accepting(
    conn: &mut PgConnection,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<AcceptingNode>, Error> {
    Ok(sqlx::query_as!(
        AcceptingNode,
        r#"SELECT n.name AS node, count(*) AS "certificates!" FROM ssh_certificates c JOIN nodes n ON n.id = c.node_id
           WHERE c.revoked_at IS NOT NULL AND (c.ends_at IS NULL OR c.ends_at > $1) AND n.os_host_key IS NOT NULL
             AND c.held_host_key IS DISTINCT FROM n.os_host_key
           GROUP BY n.name ORDER BY n.name LIMIT $2"#,
        now.to_sqlx() as _,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Deletes at most `limit` certificates with an end before `now`, or without an end and issued
/// before `issued_before`. A revoked certificate without an end stays: the next list of the node
/// would accept the certificate again. Returns the number of deleted rows.
pub async fn delete_ended(
    conn: &mut PgConnection,
    now: Timestamp,
    issued_before: Timestamp,
    limit: i64,
) -> Result<u64, Error> {
    let gone = sqlx::query!(
        "DELETE FROM ssh_certificates WHERE serial IN (
             SELECT serial FROM ssh_certificates WHERE ends_at < $1 OR ends_at IS NULL AND revoked_at IS NULL AND issued_at < $2 LIMIT $3 FOR UPDATE SKIP LOCKED)",
        now.to_sqlx() as _,
        issued_before.to_sqlx() as _,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(gone.rows_affected())
}
