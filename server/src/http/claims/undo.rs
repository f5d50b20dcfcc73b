//! The route for undoing a release.

use axum::extract::State;
use muster_api::operations::Operation;
use muster_api::problem::Problem;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::Path;
use crate::intents::answer::Answer;
use crate::intents::claims::undo::undo;
use crate::intents::idempotency::IdempotencyKey;

/// Undoes a release while the disks are kept. A repeated call leads to the same operation.
#[utoipa::path(post, path = "/v1/claims/{claim}/undo",
    extensions(("x-muster-access" = json!({ "verb": "claim.release", "place": "claim={claim}" }))),
    tag = "claims",
    params(("claim", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 202, description = "The operation of the node's return", body = Operation),
    (status = 409, description = "The claim is not being released, or the undo window has ended", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn undo_release(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    undo(&app, &actor, &key, idempotency).await
}
