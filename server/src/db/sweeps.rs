//! Sweeps: the nodes due for a sweep with the suite of the sweep, and the nodes held back for a sweep.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::pools::DEFAULT_SWEEP_EVERY_H;
use muster_core::gates::Suite;
use muster_core::ids::{NodeId, OperationId};
use sqlx::PgConnection;
use sqlx::types::Json;

use super::drift::Candidate;
use crate::error::Error;

/// Returns the suite named in the health section of the pool claiming a node. `named` is `sweep` or
/// `smoke`.
///
/// # Errors
/// When the stored suite cannot be parsed.
pub async fn find_suite(
    conn: &mut PgConnection,
    node: NodeId,
    named: &str,
) -> Result<Option<Suite>, Error> {
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

/// Returns whether the scheduler holds back another node of the pool for a sweep.
pub async fn is_pool_swept(conn: &mut PgConnection, node: NodeId) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM claims own JOIN claims c ON c.pool_id = own.pool_id AND c.state = 'bound' JOIN nodes n ON n.id = c.node_id
                          WHERE own.node_id = $1 AND own.state <> 'released' AND n.id <> $1 AND n.held_back) AS "swept!""#,
        node as NodeId,
    )
    .fetch_one(conn)
    .await?)
}

/// Returns whether the sweep of an operation has the node alone: the scheduler holds the node back,
/// and no scheduler job runs there.
pub async fn is_alone(
    conn: &mut PgConnection,
    node: NodeId,
    operation: Option<OperationId>,
) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM nodes n JOIN jobs j ON j.node_id = n.id AND j.visit = n.visit AND NOT j.superseded
                          WHERE n.id = $1 AND n.held_back AND j.operation_id = $2 AND j.step = 'hold' AND j.state = 'succeeded') AS "alone!""#,
        node as NodeId,
        operation as Option<OperationId>,
    )
    .fetch_one(conn)
    .await?)
}

/// Records that the scheduler uses the node again.
pub async fn give_back(conn: &mut PgConnection, node: NodeId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET held_back = false WHERE id = $1 AND held_back",
        node as NodeId
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists the next nodes in service after the id `after`, ordered by id. A node is due if idle and
/// not swept within the interval of the pool.
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
