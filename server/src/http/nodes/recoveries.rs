//! What was tried on a node that failed.

use axum::extract::State;
use muster_api::object::Page;
use muster_api::recoveries::Recovery;
use muster_core::ids::NodeId;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::recoveries::RecoveryRow;
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::extract::Path;

/// More than anybody reads; older ones are in the events.
pub const NEWEST: i64 = 50;

/// Recoveries of a node, newest first; the first may be under way.
#[utoipa::path(get, path = "/v1/nodes/{node}/recoveries", tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "The newest fifty", body = Page<Recovery>),
))]
pub(super) async fn list_node_recoveries(
    State(app): State<App>,
    _: Actor,
    Path(node): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let id = db::nodes::find_id(&mut conn, &node).await?.ok_or_else(|| Error::NotFound(format!("node {node:?}")))?;
    let rows = db::recoveries::list(&mut conn, id, NEWEST).await?;
    Answer::ok(&Page { items: rows.into_iter().map(|row| object(id, row)).collect(), next_page_token: None })
}

/// As the API and the pages show it.
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
        ended: row.ended,
        operation: row.operation.map(|id| id.0),
    }
}
