//! Reading nodes.

use axum::extract::State;
use muster_api::nodes::Why;
use muster_api::problem::Problem;
use muster_core::ids::NodeId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::app::App;
use crate::auth::Actor;
use crate::db::filter;
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::http::paging::{self, ListQuery};
use crate::intents::answer::Answer;
use crate::intents::nodes::view;

/// Lists the nodes inside the caller's read scope, by name unless another sort is requested.
#[utoipa::path(get, path = "/v1/nodes",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "any" }))),
    tag = "nodes", params(ListQuery), responses(
    (status = 200, description = "One page of nodes", body = ref("#/components/schemas/NodePage")),
    (status = 422, description = "The filter names a field or value that does not exist", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list_nodes(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let now = app.clock.now();
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        let ids: Vec<NodeId> = ids.iter().copied().map(NodeId).collect();
        view::load(conn, &ids, now).await
    };
    let mut conn = app.pool.acquire().await?;
    let sight = actor.sight();
    paging::build_page(
        &mut conn,
        &filter::NODES,
        &query,
        Vec::new(),
        &sight,
        load,
        |node| (node.id, node.name.as_str()),
    )
    .await
}

/// Returns one node by name or id.
#[utoipa::path(get, path = "/v1/nodes/{node}",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "The node; its generation is the ETag", body = ref("#/components/schemas/Node")),
    (status = 404, description = "No such node", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get_node(
    State(app): State<App>,
    _: Actor,
    Path(node): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let object = view::load_one(&mut conn, &node, app.clock.now()).await?;
    Ok(Answer::ok(&object)?.etag(object.generation))
}

/// Returns the reason why a node is not moving.
#[utoipa::path(get, path = "/v1/nodes/{node}/why",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "The reason in one sentence, and as data", body = Why),
))]
pub(super) async fn get_node_why(
    State(app): State<App>,
    _: Actor,
    Path(node): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let object = view::load_one(&mut conn, &node, app.clock.now()).await?;
    Answer::ok(&object.status.why)
}
