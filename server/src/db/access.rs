//! Site, rack, pool and labels of objects for access checks.

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::objects::Labels;
use crate::access::Place;
use crate::error::Error;

struct PlaceRow {
    site: Option<String>,
    rack: Option<String>,
    pool: Option<String>,
    labels: Labels,
}

/// Returns the place of an object of a kind, by name or id. `None`: the object does not exist.
pub async fn find_place(
    conn: &mut PgConnection,
    kind: &str,
    key: &str,
) -> Result<Option<Place>, Error> {
    let id = Uuid::parse_str(key).ok();
    let row = match kind {
        "node" => find_node(conn, Some(key), id).await?,
        "claim" | "operation" | "approval" | "waiver" | "job" => {
            match node_of(conn, kind, key, id).await? {
                None => find_waived(conn, kind, id).await?,
                // A run of pairs has no node of its own. The place is the pool under test.
                Some((None, None)) if kind == "operation" => match pool_of_pairs(conn, id).await? {
                    Some(pool) => find_declared(conn, "pool", "", Some(pool)).await?,
                    None => Some(PlaceRow {
                        site: None,
                        rack: None,
                        pool: None,
                        labels: Json::default(),
                    }),
                },
                // An object without a node has neither site nor rack.
                Some((None, pool)) => Some(PlaceRow {
                    site: None,
                    rack: None,
                    pool,
                    labels: Json::default(),
                }),
                Some((node, pool)) => node_with(conn, node, pool).await?,
            }
        }
        // A rollout is at the place of its pool.
        "rollout" => match pool_of_rollout(conn, key, id).await? {
            Some(pool) => find_declared(conn, "pool", "", Some(pool)).await?,
            None => None,
        },
        _ => find_declared(conn, kind, key, id).await?,
    };
    Ok(row.map(
        |PlaceRow {
             site,
             rack,
             pool,
             labels,
         }| Place {
            site,
            rack,
            pool,
            labels: labels.0,
        },
    ))
}

async fn find_node(
    conn: &mut PgConnection,
    name: Option<&str>,
    id: Option<Uuid>,
) -> Result<Option<PlaceRow>, Error> {
    Ok(sqlx::query_as!(
        PlaceRow,
        r#"SELECT s.name AS "site?", r.name AS "rack?", p.name AS "pool?", n.labels AS "labels: Labels"
           FROM nodes n JOIN objects s ON s.id = n.site_id LEFT JOIN objects r ON r.id = n.rack_id
                LEFT JOIN claims c ON c.node_id = n.id AND c.state <> 'released' LEFT JOIN objects p ON p.id = c.pool_id
           WHERE n.name = $1 OR n.id = $2"#,
        name,
        id,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the place of a node with the pool replaced by the claim's own pool. After a release the
/// node may belong to another claim, and so to another pool.
async fn node_with(
    conn: &mut PgConnection,
    id: Option<Uuid>,
    pool: Option<String>,
) -> Result<Option<PlaceRow>, Error> {
    let row = find_node(conn, None, id).await?;
    Ok(row.map(|row| PlaceRow {
        pool: pool.or(row.pool),
        ..row
    }))
}

async fn pool_of_pairs(conn: &mut PgConnection, id: Option<Uuid>) -> Result<Option<Uuid>, Error> {
    Ok(
        sqlx::query_scalar!("SELECT pool_id FROM pair_runs WHERE id = $1", id)
            .fetch_optional(conn)
            .await?,
    )
}

async fn pool_of_rollout(
    conn: &mut PgConnection,
    name: &str,
    id: Option<Uuid>,
) -> Result<Option<Uuid>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT pool_id FROM rollouts WHERE name = $1 OR id = $2",
        name,
        id
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the place of a waiver's subject: a node, a rack or a pool. The key is the id of the
/// waiver or of its approval.
async fn find_waived(
    conn: &mut PgConnection,
    kind: &str,
    id: Option<Uuid>,
) -> Result<Option<PlaceRow>, Error> {
    let found = sqlx::query!(
        r#"SELECT CASE WHEN w.rack_id IS NOT NULL THEN 'rack' WHEN w.pool_id IS NOT NULL THEN 'pool' ELSE 'node' END AS "kind!",
                  coalesce(w.node_id, w.rack_id, w.pool_id) AS "id!"
           FROM waivers w LEFT JOIN approvals a ON a.waiver_id = w.id
           WHERE ($1 = 'waiver' AND w.id = $2) OR ($1 = 'approval' AND a.id = $2)"#,
        kind,
        id,
    )
    .fetch_optional(&mut *conn)
    .await?;
    match found {
        None => Ok(None),
        Some(of) if of.kind == "node" => find_node(conn, None, Some(of.id)).await,
        Some(of) => find_declared(conn, &of.kind, "", Some(of.id)).await,
    }
}

/// Returns the node of a claim, an operation, an approval or a job, and the pool of the claim where
/// there is one. An approval belongs to a claim or directly to a node.
async fn node_of(
    conn: &mut PgConnection,
    kind: &str,
    key: &str,
    id: Option<Uuid>,
) -> Result<Option<(Option<Uuid>, Option<String>)>, Error> {
    let row = sqlx::query!(
        r#"SELECT f.node_id AS "node?", p.name AS "pool?" FROM (
               SELECT node_id, id AS claim_id FROM claims WHERE $1 = 'claim' AND (id = $3 OR (name = $2 AND state <> 'released'))
               UNION ALL SELECT node_id, claim_id FROM operations WHERE $1 = 'operation' AND id = $3
               UNION ALL SELECT c.node_id, c.id FROM approvals a JOIN claims c ON c.id = a.claim_id WHERE $1 = 'approval' AND a.id = $3
               UNION ALL SELECT a.node_id, NULL FROM approvals a WHERE $1 = 'approval' AND a.id = $3 AND a.node_id IS NOT NULL
               UNION ALL SELECT j.node_id, o.claim_id FROM jobs j LEFT JOIN operations o ON o.id = j.operation_id WHERE $1 = 'job' AND j.id = $3
           ) f LEFT JOIN claims c ON c.id = f.claim_id LEFT JOIN objects p ON p.id = c.pool_id"#,
        kind,
        key,
        id,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| (row.node, row.pool)))
}

/// Returns the place of a declared object. A site, rack or pool is its own place. Other objects
/// have the site named in `/spec/site`, or else the site of the cluster named in `/spec/cluster`.
async fn find_declared(
    conn: &mut PgConnection,
    kind: &str,
    key: &str,
    id: Option<Uuid>,
) -> Result<Option<PlaceRow>, Error> {
    Ok(sqlx::query_as!(
        PlaceRow,
        r#"SELECT CASE o.kind WHEN 'site' THEN o.name ELSE coalesce(s.name, cs.name) END AS "site?",
                  CASE o.kind WHEN 'rack' THEN o.name END AS "rack?", CASE o.kind WHEN 'pool' THEN o.name END AS "pool?",
                  o.labels AS "labels: Labels"
           FROM objects o
                LEFT JOIN object_refs rs ON rs.from_id = o.id AND rs.pointer = '/spec/site' LEFT JOIN objects s ON s.id = rs.to_id
                LEFT JOIN object_refs rc ON rc.from_id = o.id AND rc.pointer = '/spec/cluster'
                LEFT JOIN object_refs rcs ON rcs.from_id = rc.to_id AND rcs.pointer = '/spec/site' LEFT JOIN objects cs ON cs.id = rcs.to_id
           WHERE o.kind = $1 AND (o.name = $2 OR o.id = $3)"#,
        kind,
        key,
        id,
    )
    .fetch_optional(conn)
    .await?)
}
