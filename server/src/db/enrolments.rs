//! Enrolment of agents: single-use tokens exchanged for certificates, and the validity of each
//! agent's latest certificate.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::agents::AgentRefusal;
use muster_core::ids::{AgentId, ObjectId};
use sqlx::PgConnection;

use crate::error::Error;

/// An agent requesting a certificate.
#[derive(Clone, Debug)]
pub struct EnrolRow {
    pub id: AgentId,
    pub name: String,
    pub site: ObjectId,
    pub site_name: String,
    pub token_until: Option<jiff_sqlx::Timestamp>,
    /// SHA-256 of the public key that used the token.
    pub token_key: Option<Vec<u8>>,
    /// SHA-256 of the public key of the newest certificate. `None`: issued by a server of the
    /// previous version.
    pub newest_key: Option<Vec<u8>>,
    /// SHA-256 of the public key of the certificate before.
    pub former_key: Option<Vec<u8>>,
    /// The start of the certificate of `newest_key`.
    pub newest_key_at: Option<jiff_sqlx::Timestamp>,
    /// Why every call is refused.
    pub refused: Option<AgentRefusal>,
}

/// Enrols an agent for a site. The token is shown once to the caller and stored as a hash. An
/// existing agent of the same name and site gets the new token if its certificate has expired or
/// was never issued.
///
/// # Errors
/// When the name is taken by an agent with a valid certificate, or by an agent of another site.
pub async fn insert(
    conn: &mut PgConnection,
    site: ObjectId,
    name: &str,
    token_hash: &[u8],
    now: Timestamp,
    until: Timestamp,
) -> Result<AgentId, Error> {
    let id = sqlx::query_scalar!(
        r#"INSERT INTO agents AS a (id, site_id, name, token_hash, token_until) VALUES ($1, $2, $3, $4, $5)
           ON CONFLICT (name) DO UPDATE SET token_hash = $4, token_until = $5, token_key = NULL, generation = a.generation + 1,
               newest_key = NULL, former_key = NULL, newest_key_at = NULL, refused = NULL, bare_marks = true
           WHERE a.site_id = $2 AND (a.certified_until IS NULL OR a.certified_until <= $6)
           RETURNING id AS "id: AgentId""#,
        AgentId::new() as AgentId,
        site as ObjectId,
        name,
        token_hash,
        until.to_sqlx() as _,
        now.to_sqlx() as _,
    )
    .fetch_optional(conn)
    .await?;
    id.ok_or_else(|| {
        let detail = "The name is taken by an agent that has a certificate; remove it first.";
        Error::taken("agents_name_key", name, "name_taken", detail)
    })
}

/// Returns the agent of a token and locks the agent's row, so that no other request uses the token
/// before the transaction ends.
pub async fn hold_by_token(
    conn: &mut PgConnection,
    token_hash: &[u8],
) -> Result<Option<EnrolRow>, Error> {
    Ok(
        sqlx::query_as!(EnrolRow, r#"SELECT a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name,
                  a.token_until AS "token_until: jiff_sqlx::Timestamp", a.token_key, a.newest_key, a.former_key,
                  a.newest_key_at AS "newest_key_at: jiff_sqlx::Timestamp", a.refused
           FROM agents a JOIN objects s ON s.id = a.site_id WHERE a.token_hash = $1 FOR NO KEY UPDATE OF a"#, token_hash,)
            .fetch_optional(conn)
            .await?,
    )
}

/// Locks and returns an agent renewing its certificate.
pub async fn hold_for_renewal(
    conn: &mut PgConnection,
    agent: AgentId,
) -> Result<Option<EnrolRow>, Error> {
    Ok(
        sqlx::query_as!(EnrolRow, r#"SELECT a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name,
                  a.token_until AS "token_until: jiff_sqlx::Timestamp", a.token_key, a.newest_key, a.former_key,
                  a.newest_key_at AS "newest_key_at: jiff_sqlx::Timestamp", a.refused
           FROM agents a JOIN objects s ON s.id = a.site_id WHERE a.id = $1 FOR NO KEY UPDATE OF a"#, agent as AgentId,)
            .fetch_optional(conn)
            .await?,
    )
}

/// Records the key that used a token. Any other key is refused from now on.
pub async fn use_token(conn: &mut PgConnection, agent: AgentId, key: &[u8]) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE agents SET token_key = $2 WHERE id = $1",
        agent as AgentId,
        key
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records the validity and the key of an agent's latest certificate. A request with the same key
/// as before keeps the former key.
pub async fn set_certified(
    conn: &mut PgConnection,
    agent: AgentId,
    keys: CertifiedKeys<'_>,
    from: Timestamp,
    until: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE agents SET certified_at = $2, certified_until = $3, late_told = false, newest_key = $4, newest_key_at = $2,
                former_key = CASE WHEN newest_key = $4 THEN former_key ELSE $5 END
         WHERE id = $1",
        agent as AgentId,
        from.to_sqlx() as _,
        until.to_sqlx() as _,
        keys.newest,
        keys.shown,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// SHA-256 of the keys of an issued certificate.
#[derive(Clone, Copy, Debug)]
pub struct CertifiedKeys<'digest> {
    /// The key of the new certificate.
    pub newest: &'digest [u8],
    /// The key that the agent showed for the request. `None`: the agent showed a token.
    pub shown: Option<&'digest [u8]>,
}

/// An agent with an overdue certificate renewal.
#[derive(Clone, Debug)]
pub struct LateRow {
    pub id: AgentId,
    pub name: String,
    pub site: ObjectId,
    pub site_name: String,
    pub until: jiff_sqlx::Timestamp,
}

/// Marks and returns the agents whose latest certificate is past three quarters of its lifetime.
/// Each certificate is reported once.
pub async fn mark_late(conn: &mut PgConnection, now: Timestamp) -> Result<Vec<LateRow>, Error> {
    Ok(sqlx::query_as!(
        LateRow,
        r#"UPDATE agents a SET late_told = true FROM objects s
           WHERE s.id = a.site_id AND NOT a.late_told AND $1 >= a.certified_at + 0.75 * (a.certified_until - a.certified_at)
           RETURNING a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name,
                     a.certified_until AS "until!: jiff_sqlx::Timestamp""#,
        now.to_sqlx() as _,
    )
    .fetch_all(conn)
    .await?)
}
