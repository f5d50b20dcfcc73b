//! The route for alert reports of Prometheus' Alertmanager.

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

/// Receives alerts from Alertmanager's `webhook_configs`.
///
/// Each alert is recorded on the timeline of its node. A repeated alert has no further effect. An
/// alert with the label `muster="quarantine"` takes the node out of service through the scheduler.
///
/// A circuit breaker stops mass quarantine. The breaker opens when the same alert took out more
/// than two nodes within the hour, and more than one in twenty of the nodes in service. Further
/// nodes then stay in service, because the cause is in the fleet, and a person must decide.
// The verb is checked for each node of an alert.
#[utoipa::path(post, path = "/v1/alerts",
    extensions(("x-muster-access" = json!({ "verb": "node.quarantine", "place": "any" })),
        ("x-muster-links" = json!({ "operation": ["get_operation", {"id": "$response.body#/alerts/0/operation"}] }))),
    tag = "alerts", params(("Idempotency-Key" = Option<String>, Header)),
    request_body = AlertGroup, responses(
    (status = 200, description = "Alerts received; `outcome` gives the result of each", body = AlertsHeard),
    (status = 422, description = "The version differs from 4, or the group has too many alerts", body = Problem, content_type = "application/problem+json"),
))]
async fn report_alerts(
    extract::State(app): extract::State<App>,
    actor: Actor,
    idempotency: IdempotencyKey,
    Json(group): Json<AlertGroup>,
) -> Result<Answer, Error> {
    alerts::report(&app, &actor, idempotency, &group).await
}
