//! The route of actions on nodes.

use axum::extract::State;
use muster_api::nodes::NodeAction;
use muster_api::operations::Operation;
use muster_api::problem::Problem;
use muster_core::lifecycle::state::Action;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::{OptionalJson, Path};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::actions::request_action;
use crate::intents::preconditions::Preconditions;

/// Requests an action on a node.
///
/// The actions are accept, reject, inspect, retry, quarantine, recover, wipe, drain, undrain,
/// maintain, resume, retire, reinstate, check-drift, sweep, power-on, power-off, power-cycle,
/// run-gates, converge, reinstall and rotate-bmc.
///
/// With If-Match, the action is rejected when the node has changed since the read. Actions that
/// erase a disk (wipe, reinstall) require If-Match with an ETag, not `*`. Beyond the hourly limit
/// they wait for a second person.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/{action}",
    extensions(("x-muster-access" = json!({ "verb": "node.{action}", "place": "node={node}" }))),
    tag = "nodes",
    params(("node", description = "Name or id"), ("action", description = "The action"), ("If-Match" = Option<String>, Header),
        ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = NodeAction), responses(
    (status = 202, description = "The action is requested; Location leads to the operation", body = Operation),
    (status = 409, description = "The node's state does not allow the action, or the node is protected or busy. With the code `second_person`, a second person must approve, and Link leads to the approval",
        body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The node has changed since the read", body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "If-Match is missing for wipe or reinstall", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn act_on_node(
    State(app): State<App>,
    actor: Actor,
    Path((key, action)): Path<(String, String)>,
    idempotency: IdempotencyKey,
    preconditions: Preconditions,
    OptionalJson(body): OptionalJson<NodeAction>,
) -> Result<Answer, Error> {
    // A release ends a claim, and has the route of the claim.
    let known = action
        .parse()
        .ok()
        .filter(|action| *action != Action::Release);
    let known = known.ok_or_else(|| Error::NotFound(format!("The action {action:?}")))?;
    request_action(&app, &actor, &key, idempotency, preconditions, &body, known).await
}
