//! The route that replaces the node of a claim.

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

/// Gives a claim another node: an available one of its pool and selector, or the one that is named, is installed and passes its gates; only once it serves
/// does the claim take it, and the node it had is released. Until then the claim keeps that node, and cancelling the operation leaves it so. The same call
/// again leads to the same operation.
#[utoipa::path(post, path = "/v1/claims/{claim}/actions/replace", tag = "claims",
    params(("claim", description = "Name or id"), ("If-Match" = String, Header), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = ReplaceClaim), responses(
    (status = 202, description = "The node that comes is the operation's; it is over once the claim has it", body = Operation),
    (status = 409, description = "No node is to spare, the node is protected, the claim is over, or a second person must agree: `second_person`, and Link leads to the approval",
        body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The claim was changed since it was read", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "There is no such node", body = Problem, content_type = "application/problem+json"),
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
