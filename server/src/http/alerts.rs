//! The route where Prometheus' Alertmanager reports alerts.

use axum::extract;
use muster_api::alerts::{AlertGroup, AlertsHeard};
use muster_api::problem::Problem;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::Json;
use crate::intents::alerts;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;

/// The routes of alerts.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(report_alerts))
}

/// Hears alerts, as Alertmanager's `webhook_configs` send them. The same alert again is known. An alert whose labels say `muster="quarantine"` takes its
/// node out of service through the scheduler, unless the same alert took out more than two nodes, and more than one of twenty in service, within the
/// hour: then it is the fleet, and a person decides.
#[utoipa::path(post, path = "/v1/alerts", tag = "alerts", params(("Idempotency-Key" = Option<String>, Header)),
    request_body = AlertGroup, responses(
    (status = 200, description = "Heard: what became of each", body = AlertsHeard),
    (status = 422, description = "Another version than 4, or too many at once", body = Problem, content_type = "application/problem+json"),
))]
async fn report_alerts(
    extract::State(app): extract::State<App>,
    actor: Actor,
    idempotency: IdempotencyKey,
    Json(group): Json<AlertGroup>,
) -> Result<Answer, Error> {
    alerts::report(&app, &actor, idempotency, &group).await
}
