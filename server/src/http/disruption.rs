//! Routes of the disruption budget.

use axum::extract::State;
use muster_api::disruption::{Disruption, WriteOff};
use muster_api::problem::Problem;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::{Json, Path};
use crate::intents::answer::Answer;
use crate::intents::claims::write_off;
use crate::intents::disruption;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::pairs::find_pool;

/// The routes of the disruption budget.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(get_pool_disruption))
        .routes(routes!(write_off_claim))
}

/// Counts the nodes of a pool out of service, against the budgets of the pool and of its failure
/// domains.
///
/// Muster takes no serving node out of service when the result would exceed a budget. The requests
/// waiting for a free slot are listed.
#[utoipa::path(get, path = "/v1/pools/{pool}/disruption",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "pool={pool}" }))),
    tag = "pools", params(("pool", description = "Name or id")), responses(
    (status = 200, description = "The budgets, the nodes out of service and the waiting requests", body = Disruption),
    (status = 404, description = "No such pool", body = Problem, content_type = "application/problem+json"),
))]
async fn get_pool_disruption(
    State(app): State<App>,
    actor: Actor,
    Path(pool): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let pool = find_pool(&mut conn, &pool).await?;
    Answer::ok(&disruption::describe(&mut conn, &actor, &pool, app.clock.now()).await?)
}

/// Writes a claim's node off until a time, or ends the write-off.
///
/// A node written off is out of service and does not count against a disruption budget, so a long
/// repair does not stop all other work. The node counts again at the given time, or when the node
/// is back in service.
#[utoipa::path(post, path = "/v1/claims/{claim}/actions/write-off",
    extensions(("x-muster-access" = json!({ "verb": "claim.write-off", "place": "claim={claim}" })),
        ("x-muster-links" = json!({ "self": ["get_claim", {"claim": "$response.body#/name"}] }))),
    tag = "claims", params(("claim", description = "Name or id"),
    ("Idempotency-Key" = Option<String>, Header)), request_body = WriteOff, responses(
    (status = 200, description = "The claim, with the write-off", body = ref("#/components/schemas/Claim")),
    (status = 404, description = "No such claim", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The claim has ended, or its node is in service or at work", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The reason is missing, or the time is out of range", body = Problem, content_type = "application/problem+json"),
))]
async fn write_off_claim(
    State(app): State<App>,
    actor: Actor,
    Path(claim): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<WriteOff>,
) -> Result<Answer, Error> {
    write_off::write_off(&app, &actor, &claim, idempotency, &body).await
}
