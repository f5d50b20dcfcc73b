//! The route for the adoption of a running machine.

use axum::extract::State;
use muster_api::nodes::{AdoptNode, NodePlan};
use muster_api::operations::Operation;
use muster_api::problem::Problem;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::{Json, Path};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::adopt::adopt;
use crate::intents::nodes::place::DryRun;

/// Adopts a discovered and running node into a pool, without changing its system.
///
/// The node comes into service without a reboot, an installation or a drain.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/adopt",
    extensions(("x-muster-access" = json!({ "verb": "node.adopt", "place": "node={node}" }))),
    tag = "nodes",
    params(("node", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = AdoptNode), responses(
    (status = 200, description = "The plan", body = NodePlan),
    (status = 202, description = "The adoption is requested; Location leads to the operation", body = Operation),
    (status = 409, description = "The node's state does not allow adoption, or the node is busy", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The request is well-formed but invalid; `errors` lists each problem", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn adopt_node(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<AdoptNode>,
) -> Result<Answer, Error> {
    adopt(&app, &actor, &key, idempotency, DryRun::asked(), &body).await
}
