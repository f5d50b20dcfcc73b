//! The route for replacing the node of a claim.

use axum::extract::State;
use muster_api::claims::ReplaceClaim;
use muster_api::operations::Operation;
use muster_api::problem::Problem;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::{OptionalJson, Path};
use crate::intents::answer::Answer;
use crate::intents::claims::replace::replace;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::preconditions::Preconditions;

/// Replaces the node of a claim.
///
/// The new node is the named node, or any available node fitting the pool and the selector. The new
/// node is installed and passes the gates first. When the new node serves, the claim takes it and
/// releases the old node. Until then the claim keeps the old node, and cancelling the operation
/// keeps the old node too. A repeated call leads to the same operation. `If-Match: *` is refused:
/// send the ETag that was read.
// The handler also checks `claim.create` at the replacement node.
#[utoipa::path(post, path = "/v1/claims/{claim}/actions/replace",
    extensions(("x-muster-access" = json!({ "verb": "claim.release", "place": "claim={claim}" }))),
    tag = "claims",
    params(("claim", description = "Name or id"), ("If-Match" = String, Header), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = ReplaceClaim), responses(
    (status = 202, description = "The operation of the new node; it is done when the claim has the new node", body = Operation),
    (status = 409, description = "No spare node fits, the node is protected, the claim has ended, or the pool asks for a signature that its image lacks (`unsigned_image`). With the code `second_person`, a second person must approve, and Link leads to the approval",
        body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The claim has changed since the read", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "No such node", body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn replace_claim(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
    preconditions: Preconditions,
    OptionalJson(body): OptionalJson<ReplaceClaim>,
) -> Result<Answer, Error> {
    replace(&app, &actor, &key, idempotency, preconditions, &body).await
}
