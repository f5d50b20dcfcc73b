//! How agents come by their certificates: tokens that are used once, and what is known of the newest certificate.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{AgentId, ObjectId};
use sqlx::PgConnection;

use crate::error::Error;

/// An agent that asks for a certificate.
#[derive(Clone, Debug)]
pub struct EnrolRow {
    pub id: AgentId,
    pub name: String,
    pub site: ObjectId,
    pub site_name: String,
    pub token_until: Option<jiff_sqlx::Timestamp>,
    /// SHA-256 of the public key that used the token.
    pub token_key: Option<Vec<u8>>,
}

/// Enrols an agent for a site: its token is shown once and stored as a hash. An agent of that name whose certificate has ended, or that never had
/// one, gets another token in place of the former; one that has a certificate is a conflict.
///
/// # Errors
/// When the name is taken or the database fails.
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
           ON CONFLICT (name) DO UPDATE SET token_hash = $4, token_until = $5, token_key = NULL, generation = a.generation + 1
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

/// The agent that a token was made for; until the transaction ends nobody else uses it.
pub async fn hold_by_token(
    conn: &mut PgConnection,
    token_hash: &[u8],
) -> Result<Option<EnrolRow>, Error> {
    Ok(sqlx::query_as!(
        EnrolRow,
        r#"SELECT a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name,
                  a.token_until AS "token_until: jiff_sqlx::Timestamp", a.token_key
           FROM agents a JOIN objects s ON s.id = a.site_id WHERE a.token_hash = $1 FOR NO KEY UPDATE OF a"#,
        token_hash,
    )
    .fetch_optional(conn)
    .await?)
}

/// An agent that renews.
pub async fn hold_for_renewal(
    conn: &mut PgConnection,
    agent: AgentId,
) -> Result<Option<EnrolRow>, Error> {
    Ok(sqlx::query_as!(
        EnrolRow,
        r#"SELECT a.id AS "id: AgentId", a.name, a.site_id AS "site: ObjectId", s.name AS site_name,
                  a.token_until AS "token_until: jiff_sqlx::Timestamp", a.token_key
           FROM agents a JOIN objects s ON s.id = a.site_id WHERE a.id = $1 FOR NO KEY UPDATE OF a"#,
        agent as AgentId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Notes which key used a token: no other one may.
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

/// Notes an agent's newest certificate.
pub async fn set_certified(
    conn: &mut PgConnection,
    agent: AgentId,
    from: Timestamp,
    until: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE agents SET certified_at = $2, certified_until = $3, late_told = false WHERE id = $1",
        agent as AgentId,
        from.to_sqlx() as _,
        until.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// An agent whose certificate should have been renewed.
#[derive(Clone, Debug)]
pub struct LateRow {
    pub id: AgentId,
    pub name: String,
    pub site: ObjectId,
    pub site_name: String,
    pub until: jiff_sqlx::Timestamp,
}

/// The agents whose newest certificate is past three quarters of its life, each once.
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
