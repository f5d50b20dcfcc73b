//! The route for matching a discovered machine with a declared node.

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

/// Matches a discovered machine with a declared node.
///
/// The MACs, facts and components of the machine move to the declared node, and the record of the
/// discovered machine is deleted. The machine itself is not touched. The declared node is then
/// accepted, retried or recovered, depending on its state.
// The handler also checks the declared node.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/match",
    extensions(("x-muster-access" = json!({ "verb": "node.match", "place": "node={node}" }))),
    tag = "nodes",
    params(("node", description = "Name or id of the discovered machine"), ("If-Match" = String, Header), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = MatchNode), responses(
    (status = 200, description = "The plan", body = NodePlan),
    (status = 202, description = "The match is done; Location leads to the operation of the declared node", body = Operation),
    (status = 409, description = "One of the two nodes is claimed, protected, in service or busy, or the two do not form a pair; the code is `blocked`", body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The discovered machine has changed since the read", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The request is well-formed but invalid; `errors` lists each problem", body = Problem, content_type = "application/problem+json"),
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
