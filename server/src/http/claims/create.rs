//! The route for creating a claim.

use axum::extract::State;
use muster_api::claims::CreateClaim;
use muster_api::problem::Problem;

use crate::app::App;
use crate::auth::Actor;
use crate::document::Document;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::claims::create;
use crate::intents::idempotency::IdempotencyKey;

/// Binds a node to a pool: the named node, or any available and fitting node.
// The verb is checked for both ends, the node and the pool.
#[utoipa::path(post, path = "/v1/claims",
    extensions(("x-muster-access" = json!({ "verb": "claim.create", "place": "any" })),
        ("x-muster-links" = json!({ "self": ["get_claim", {"claim": "$response.body#/name"}] }))),
    tag = "claims", params(("Idempotency-Key" = Option<String>, Header)),
    request_body = CreateClaim, responses(
    (status = 201, description = "The claim is bound; `status.operation` is the operation of the installation", body = ref("#/components/schemas/Claim")),
    (status = 409, description = "No fitting node is available, the pool's stack is incompatible with the named node, or the pool asks for a signature that its image lacks (`unsigned_image`)", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The request is well-formed but invalid; `errors` lists each problem", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn create_claim(
    State(app): State<App>,
    actor: Actor,
    idempotency: IdempotencyKey,
    document: Document<CreateClaim>,
) -> Result<Answer, Error> {
    create::submit(&app, &actor, idempotency, document).await
}
