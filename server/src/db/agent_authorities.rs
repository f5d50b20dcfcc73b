//! The new authority of agents' certificates in a rotation, as trusted and shown by each agent.

use muster_core::ids::AgentId;
use sqlx::PgConnection;

use crate::error::Error;

/// The state of an agent, by the id of the new authority.
#[derive(Clone, Copy, Debug)]
pub struct AuthorityState<'a> {
    /// `None`: the agent has not stored the new authority.
    pub trusted: Option<&'a str>,
    /// `None`: the agent shows a certificate of the former authority.
    pub shown: Option<&'a str>,
}

/// Records the state of an agent, by its present call.
pub async fn record(
    conn: &mut PgConnection,
    agent: AgentId,
    state: AuthorityState<'_>,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO agent_authorities AS t (agent_id, trusted, shown) VALUES ($1, $2, $3)
         ON CONFLICT (agent_id) DO UPDATE SET trusted = $2, shown = $3
         WHERE t.trusted IS DISTINCT FROM $2 OR t.shown IS DISTINCT FROM $3",
        agent as AgentId,
        state.trusted,
        state.shown,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Forgets the state of an agent, before a new enrolment.
pub async fn forget(conn: &mut PgConnection, agent: AgentId) -> Result<(), Error> {
    sqlx::query!(
        "DELETE FROM agent_authorities WHERE agent_id = $1",
        agent as AgentId
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Forgets the states of all agents, before a new rotation.
pub async fn forget_all(conn: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!("DELETE FROM agent_authorities")
        .execute(conn)
        .await?;
    Ok(())
}

/// An agent that still needs the former authority.
#[derive(Clone, Debug)]
pub struct FormerRow {
    pub name: String,
    pub site: String,
    /// Whether the agent has made a call since the begin of the rotation.
    pub called: bool,
    /// Whether the agent has stored the new authority.
    pub trusted: bool,
}

/// Lists the agents that still need the former authority, 1000 at most.
pub async fn list_former(conn: &mut PgConnection, next: &str) -> Result<Vec<FormerRow>, Error> {
    Ok(sqlx::query_as!(
        FormerRow,
        r#"SELECT a.name, s.name AS site, t.agent_id IS NOT NULL AS "called!", coalesce(t.trusted = $1, false) AS "trusted!"
           FROM agents a JOIN objects s ON s.id = a.site_id LEFT JOIN agent_authorities t ON t.agent_id = a.id
           WHERE NOT coalesce(t.trusted = $1 AND t.shown = $1, false) ORDER BY a.name LIMIT 1000"#,
        next
    )
    .fetch_all(conn)
    .await?)
}
