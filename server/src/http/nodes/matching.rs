//! The route that matches a discovered machine with a declared node.

use axum::extract::State;
use muster_api::nodes::{MatchNode, NodePlan};
use muster_api::operations::Operation;
use muster_api::problem::Problem;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::{Json, Path};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::matching;
use crate::intents::preconditions::Preconditions;

/// Binds a discovered machine to the node that was declared for it: its MACs, facts and components are that node's from now on, and the record under which
/// it was discovered is gone. Nothing happens to the machine. The node is then accepted, retried or recovered, as its state asks for.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/match", tag = "nodes",
    params(("node", description = "Name or id of the discovered machine"), ("If-Match" = String, Header), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = MatchNode), responses(
    (status = 200, description = "The plan", body = NodePlan),
    (status = 202, description = "Done; Location leads to the operation, which is the declared node's", body = Operation),
    (status = 409, description = "One of the two is claimed, protected, in service or being worked on, or they are not such a pair: `blocked`", body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The discovered machine was changed since it was read", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "It cannot be meant: pointers say where", body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn match_node(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
    preconditions: Preconditions,
    Json(body): Json<MatchNode>,
) -> Result<Answer, Error> {
    matching::match_machine(&app, &actor, &key, idempotency, preconditions, &body).await
}
