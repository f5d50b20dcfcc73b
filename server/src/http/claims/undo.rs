//! The route that undoes a release.

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

/// Takes a release back. The same call again leads to the same operation.
#[utoipa::path(post, path = "/v1/claims/{claim}/undo", tag = "claims",
    params(("claim", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 202, description = "The way back is the operation", body = Operation),
    (status = 409, description = "It is not being released, or its disks are not kept any more", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn undo_release(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    undo(&app, &actor, &key, idempotency).await
}
