//! Routes that rename and move a node.

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

/// Gives a node another name. The id stays, and so does everything known under it.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/rename", tag = "nodes",
    params(("node", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = RenameNode), responses(
    (status = 200, description = "The plan", body = NodePlan),
    (status = 202, description = "Done; Location leads to the operation", body = Operation),
    (status = 409, description = "It is claimed, or the name is taken", body = Problem, content_type = "application/problem+json"),
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

/// Puts a node into another rack or unit. Its power goes with it: a rack that cannot feed it is refused.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/move", tag = "nodes",
    params(("node", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = MoveNode), responses(
    (status = 200, description = "The plan", body = NodePlan),
    (status = 202, description = "Done; Location leads to the operation", body = Operation),
    (status = 409, description = "The rack cannot feed it, or it is claimed and would leave its site", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "It cannot be meant: pointers say where", body = Problem, content_type = "application/problem+json"),
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
