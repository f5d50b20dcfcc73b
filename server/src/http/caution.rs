//! Routes of caution mode.

use axum::extract::State;
use muster_api::cautions::{CautionStatus, ConfirmCaution};
use muster_api::problem::Problem;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::Json;
use crate::intents::answer::Answer;
use crate::intents::caution::{confirm, status};
use crate::intents::idempotency::IdempotencyKey;

/// The routes of caution mode.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(get_caution))
        .routes(routes!(confirm_caution))
}

/// Returns whether the fleet or a site is in caution mode.
///
/// Caution mode begins when the database is older than the memory of an agent, a node or a replica,
/// for example after a restore. The witness of one site holds the caution for that site. A replica,
/// or sealed events of two sites, hold the caution for the whole fleet.
#[utoipa::path(get, path = "/v1/caution",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "any" }))),
    tag = "caution", responses(
    (status = 200, description = "The open caution, if any, and the agents", body = CautionStatus),
))]
async fn get_caution(State(app): State<App>, actor: Actor) -> Result<Answer, Error> {
    Answer::ok(&status(&mut *app.pool.acquire().await?, &actor.sight()).await?)
}

/// Ends caution mode.
///
/// Every permit issued before stays void. Interrupted work begins again.
#[utoipa::path(post, path = "/v1/caution/confirm",
    extensions(("x-muster-access" = json!({ "verb": "caution.confirm", "place": "fleet" })),
        ("x-muster-links" = json!({ "self": ["get_caution", {}] }))),
    tag = "caution",
    params(("Idempotency-Key" = Option<String>, Header)), request_body = ConfirmCaution, responses(
    (status = 200, description = "Caution mode has ended", body = CautionStatus),
    (status = 409, description = "Another caution is open, or none is", body = Problem, content_type = "application/problem+json"),
))]
async fn confirm_caution(
    State(app): State<App>,
    actor: Actor,
    idempotency: IdempotencyKey,
    Json(request): Json<ConfirmCaution>,
) -> Result<Answer, Error> {
    confirm(&app, &actor, idempotency, &request).await
}
