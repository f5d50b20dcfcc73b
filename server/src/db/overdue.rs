//! Nodes past a deadline.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::NodeId;
use muster_core::lifecycle::state::State;
use sqlx::PgConnection;

use crate::error::Error;

/// A node that has just missed a deadline.
#[derive(Clone, Debug)]
pub struct OverdueRow {
    pub id: NodeId,
    pub name: String,
    pub state: State,
    pub deadline_at: jiff_sqlx::Timestamp,
    pub waiting_for: Option<String>,
    pub next_action: Option<String>,
}

/// Marks and returns nodes past a deadline, the oldest deadlines first. Each deadline is
/// returned once. Nodes locked by a pass of the engine are left for the next call.
pub async fn mark(
    conn: &mut PgConnection,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<OverdueRow>, Error> {
    Ok(sqlx::query_as!(
        OverdueRow,
        r#"UPDATE nodes SET overdue_since = deadline_at
           WHERE id IN (SELECT id FROM nodes WHERE deadline_at < $1 AND overdue_since IS DISTINCT FROM deadline_at
                        ORDER BY deadline_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
           RETURNING id AS "id: NodeId", name, state, deadline_at AS "deadline_at!: jiff_sqlx::Timestamp", waiting_for, next_action"#,
        now.to_sqlx() as _,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Counts the nodes past a deadline by state.
pub async fn count_by_state(
    conn: &mut PgConnection,
    now: Timestamp,
) -> Result<Vec<(State, i64)>, Error> {
    let rows = sqlx::query!(
        r#"SELECT state, count(*) AS "count!" FROM nodes WHERE deadline_at < $1 GROUP BY state ORDER BY state"#,
        now.to_sqlx() as _,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.state, row.count)).collect())
}
