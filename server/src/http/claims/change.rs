//! The route for changing a claim.

use axum::extract::State;
use muster_api::claims::PatchClaim;
use muster_api::problem::Problem;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::{Body, Path};
use crate::intents::answer::Answer;
use crate::intents::claims::change;
use crate::intents::preconditions::Preconditions;

/// Applies a JSON merge patch (RFC 7396) to `spec.hold` and `spec.wait_for`.
///
/// All other members of a claim are fixed. The node is not changed.
#[utoipa::path(patch, path = "/v1/claims/{claim}",
    extensions(("x-muster-access" = json!({ "verb": "claim.release", "place": "claim={claim}" })),
        ("x-muster-links" = json!({ "self": ["get_claim", {"claim": "$response.body#/name"}] }))),
    tag = "claims", params(("claim", description = "Name or id"), ("If-Match" = Option<String>, Header)),
    request_body(content = PatchClaim, content_type = "application/merge-patch+json"), responses(
    (status = 200, description = "The claim, changed or already as requested", body = ref("#/components/schemas/Claim")),
    (status = 409, description = "The claim has ended, or the patch changes another member", body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The precondition failed", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn patch_claim(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    preconditions: Preconditions,
    Body(patch): Body,
) -> Result<Answer, Error> {
    change::patch(&app, &actor, &key, preconditions, &patch).await
}
