//! Sweeps: which nodes in service are to be swept next, and by which suite.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::pools::DEFAULT_SWEEP_EVERY_H;
use muster_core::gates::Suite;
use muster_core::ids::NodeId;
use sqlx::PgConnection;
use sqlx::types::Json;

use super::drift::Candidate;
use crate::error::Error;

/// The suite that the pool that a node is claimed for names as this: `sweep` or `smoke`.
///
/// # Errors
/// When the database fails or the suite cannot be read any more.
pub async fn find_suite(conn: &mut PgConnection, node: NodeId, named: &str) -> Result<Option<Suite>, Error> {
    let suite = sqlx::query_scalar!(
        r#"SELECT suite.spec AS "suite: Json<Suite>" FROM claims c JOIN objects pool ON pool.id = c.pool_id
           JOIN objects suite ON suite.kind = 'suite' AND suite.name = pool.spec #>> ARRAY['health', $2]
           WHERE c.node_id = $1 AND c.state <> 'released'"#,
        node as NodeId,
        named,
    )
    .fetch_optional(conn)
    .await?;
    Ok(suite.map(|json| json.0))
}

/// The next nodes in service behind `after`, by id; due are those that rest and were not swept within their pool's time.
///
/// # Errors
/// When the database fails.
pub async fn list_candidates(
    conn: &mut PgConnection,
    after: NodeId,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<Candidate>, Error> {
    Ok(sqlx::query_as!(
        Candidate,
        r#"SELECT n.id AS "id: NodeId", n.name,
                  (n.wish IS NULL AND pool.spec #>> '{health,sweep}' IS NOT NULL
                   AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id AND (j.state IN ('queued', 'leased')
                       OR (j.step = 'sweep' AND j.finished_at > $2::timestamptz - make_interval(hours => COALESCE((pool.spec #>> '{health,sweep_every_h}')::integer, $4)))))) AS "due!"
           FROM (SELECT id, name, wish FROM nodes WHERE state = 'in_service' AND id > $1 ORDER BY id LIMIT $3) n
           LEFT JOIN claims c ON c.node_id = n.id AND c.state <> 'released' LEFT JOIN objects pool ON pool.id = c.pool_id
           ORDER BY n.id"#,
        after as NodeId,
        now.to_sqlx() as _,
        limit,
        i32::try_from(DEFAULT_SWEEP_EVERY_H).unwrap_or(i32::MAX),
    )
    .fetch_all(conn)
    .await?)
}
