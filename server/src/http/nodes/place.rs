//! Routes for renaming and moving a node.

use axum::extract::State;
use muster_api::nodes::{MoveNode, NodePlan, RenameNode};
use muster_api::operations::Operation;
use muster_api::problem::Problem;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::{Json, Path};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::place::{self, DryRun};

/// Renames a node.
///
/// The id and all observations stay with the node.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/rename",
    extensions(("x-muster-access" = json!({ "verb": "node.rename", "place": "node={node}" }))),
    tag = "nodes",
    params(("node", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = RenameNode), responses(
    (status = 200, description = "The plan", body = NodePlan),
    (status = 202, description = "The change is done; Location leads to the operation", body = Operation),
    (status = 409, description = "The node is claimed, or the name is taken", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn rename_node(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<RenameNode>,
) -> Result<Answer, Error> {
    let how = DryRun::asked();
    place::rename(&app, &actor, &key, idempotency, how, &body).await
}

/// Moves a node to another site, rack or rack unit.
///
/// The reserved power of the node moves too. A rack without enough power budget rejects the move.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/move",
    extensions(("x-muster-access" = json!({ "verb": "node.move", "place": "node={node}" }))),
    tag = "nodes",
    params(("node", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = MoveNode), responses(
    (status = 200, description = "The plan", body = NodePlan),
    (status = 202, description = "The change is done; Location leads to the operation", body = Operation),
    (status = 409, description = "The rack's power budget is too small, or the node is claimed and would leave its site", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The request is well-formed but invalid; `errors` lists each problem", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn move_node(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<MoveNode>,
) -> Result<Answer, Error> {
    let how = DryRun::asked();
    place::relocate(&app, &actor, &key, idempotency, how, &body).await
}
