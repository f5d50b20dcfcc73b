//! Recovery attempts on failed nodes.

use axum::extract::State;
use muster_api::recoveries::Recovery;
use muster_core::ids::NodeId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::access::Sight;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::filter::{RECOVERIES, Term};
use crate::db::recoveries::RecoveryRow;
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::http::paging::{self, CountedPage, ListQuery};
use crate::intents::answer::Answer;

/// The largest number of recoveries shown at once.
pub const NEWEST: i64 = 50;

/// Lists the recoveries of a node, newest first unless `created_at` is requested.
///
/// The first recovery may be in progress. Filter fields: `signature`, `asked` and `ended`;
/// `ended=no` selects a recovery in progress.
#[utoipa::path(get, path = "/v1/nodes/{node}/recoveries",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id"), ListQuery), responses(
    (status = 200, description = "One page of recoveries", body = CountedPage<Recovery>),
))]
pub(super) async fn list_node_recoveries(
    State(app): State<App>,
    _: Actor,
    Path(node): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let id = db::nodes::find_id(&mut conn, &node)
        .await?
        .ok_or_else(|| Error::NotFound(format!("node {node:?}")))?;
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        Ok(db::recoveries::list_by_id(conn, ids)
            .await?
            .into_iter()
            .map(|row| object(id, row))
            .collect())
    };
    let only = vec![Term::equal("node", id.to_string())];
    paging::build_page(
        &mut conn,
        &RECOVERIES,
        &query,
        only,
        &Sight::new(),
        load,
        |one: &Recovery| (one.id, ""),
    )
    .await
}

/// Renders a recovery for the API and the pages.
pub fn object(node: NodeId, row: RecoveryRow) -> Recovery {
    Recovery {
        id: row.id,
        node: node.0,
        signature: row.signature,
        because: row.what,
        asked: row.asked,
        rungs: row.rungs,
        tried: row.went.0,
        begun_at: row.begun_at,
        ended_at: row.ended_at.map(|at| at.to_jiff()),
        ended: row.ended.map(|ended| ended.to_string()),
        operation: row.operation.map(|id| id.0),
    }
}
