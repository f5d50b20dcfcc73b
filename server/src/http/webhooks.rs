//! Deliveries of a webhook, and actions of people: send a ping, send an event again, resume after
//! failures.

use crate::db::webhooks::{DeliveryReason, DeliveryRow};
use axum::extract::State;
use http::StatusCode;
use muster_api::problem::Problem;
use muster_api::webhooks::{Delivery, Redeliver, WebhookSpec};
use muster_core::ids::EventId;
use serde_json::json;
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::declared::read;
use super::extract::{Json, Path, Query};
use super::paging::{self, CountedPage, ListQuery};
use crate::access::Sight;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::filter::{DELIVERIES, Term};
use crate::db::objects::ObjectRow;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::writing;
use crate::intents::writing::Effect;
use crate::tasks::webhooks::{KEPT, delivery};
use crate::webhooks::PING;

/// The largest number of pending deliveries requested by people, for one webhook.
const QUEUED: usize = 20;

/// The routes of deliveries, and of actions on webhooks.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_webhook_deliveries))
        .routes(routes!(test_webhook))
        .routes(routes!(redeliver_event))
        .routes(routes!(resume_webhook))
}

/// Lists attempts to deliver events to a webhook; the last 200 are kept.
///
/// Sorted newest first unless `created_at` is requested. Filter fields: `kind`, `state` and
/// `reason`.
#[utoipa::path(get, path = "/v1/webhooks/{name}/deliveries",
    extensions(("x-muster-access" = json!({ "verb": "webhook.read", "place": "fleet" }))),
    tag = "webhooks",
    params(("name", description = "Name or id"), ListQuery), responses(
    (status = 200, description = "One page of deliveries", body = CountedPage<Delivery>),
))]
async fn list_webhook_deliveries(
    State(app): State<App>,
    _: Actor,
    Path(name): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let webhook = db::objects::find(&mut conn, "webhook", &name)
        .await?
        .ok_or_else(|| missing(&name))?;
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        Ok(db::webhooks::list_deliveries_by_id(conn, ids)
            .await?
            .into_iter()
            .map(object)
            .collect())
    };
    let only = vec![Term::equal("webhook", webhook.id.to_string())];
    paging::build_page(
        &mut conn,
        &DELIVERIES,
        &query,
        only,
        &Sight::new(),
        load,
        |delivery: &Delivery| (delivery.id, ""),
    )
    .await
}

/// Sends one ping to a webhook, in any state of the webhook.
///
/// The result is in the webhook's deliveries.
#[utoipa::path(post, path = "/v1/webhooks/{name}/actions/test",
    extensions(("x-muster-access" = json!({ "verb": "webhook.write", "place": "fleet" })),
        ("x-muster-links" = json!({ "list": ["list_webhook_deliveries", {"name": "$request.path.name"}] }))),
    tag = "webhooks",
    params(("name", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 201, description = "The queued delivery", body = Delivery),
    (status = 409, description = "Too many requested deliveries are already queued", body = Problem, content_type = "application/problem+json"),
))]
async fn test_webhook(
    State(app): State<App>,
    actor: Actor,
    Path(name): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    writing::once(&app, &actor, idempotency, &(), async |conn| {
        let webhook = lock_webhook(conn, &name).await?;
        let row = delivery(
            DeliveryReason::Test,
            None,
            EventId::new(),
            PING,
            app.clock.now(),
        );
        queue_delivery(
            &app,
            conn,
            &actor,
            &webhook,
            "webhook.tested",
            "is tested",
            row,
        )
        .await
    })
    .await
}

/// Sends the event of one delivery again, with the same event id.
///
/// The state of the webhook does not matter. The result is in the webhook's deliveries.
#[utoipa::path(post, path = "/v1/webhooks/{name}/actions/redeliver",
    extensions(("x-muster-access" = json!({ "verb": "webhook.write", "place": "fleet" })),
        ("x-muster-links" = json!({ "list": ["list_webhook_deliveries", {"name": "$request.path.name"}] }))),
    tag = "webhooks", request_body = Redeliver,
    params(("name", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 201, description = "The queued delivery", body = Delivery),
    (status = 409, description = "Too many requested deliveries are already queued", body = Problem, content_type = "application/problem+json"),
))]
async fn redeliver_event(
    State(app): State<App>,
    actor: Actor,
    Path(name): Path<String>,
    idempotency: IdempotencyKey,
    Json(request): Json<Redeliver>,
) -> Result<Answer, Error> {
    writing::once(&app, &actor, idempotency, &request, async |conn| {
        let webhook = lock_webhook(conn, &name).await?;
        let before = db::webhooks::find_delivery(conn, webhook.id, request.delivery).await?;
        let unknown = || {
            Error::unprocessable(
                "/delivery",
                "not_found",
                "The webhook no longer has this delivery.",
            )
        };
        let before = before.ok_or_else(unknown)?;
        let row = delivery(
            DeliveryReason::Redelivery,
            before.seq,
            before.event_id,
            &before.kind,
            app.clock.now(),
        );
        queue_delivery(
            &app,
            conn,
            &actor,
            &webhook,
            "webhook.redelivered",
            "is told something once more",
            row,
        )
        .await
    })
    .await
}

/// Resumes a stopped webhook at the position of its stop.
///
/// A webhook waiting for its next attempt is tried now.
#[utoipa::path(post, path = "/v1/webhooks/{name}/actions/resume",
    extensions(("x-muster-access" = json!({ "verb": "webhook.write", "place": "fleet" })),
        ("x-muster-links" = json!({ "self": ["get_webhook", {"name": "$request.path.name"}] }))),
    tag = "webhooks",
    params(("name", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 200, description = "The webhook, now resumed", body = ref("#/components/schemas/Webhook")),
))]
async fn resume_webhook(
    State(app): State<App>,
    actor: Actor,
    Path(name): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    writing::once(&app, &actor, idempotency, &(), async |conn| {
        let webhook = lock_webhook(conn, &name).await?;
        db::webhooks::start(conn, webhook.id, app.clock.now()).await?;
        record(&app, conn, &actor, &webhook, "webhook.resumed", "goes on").await?;
        read::answer::<WebhookSpec>(&app, conn, webhook)
            .await
            .map(Effect::Done)
    })
    .await
}

async fn lock_webhook(conn: &mut PgConnection, name: &str) -> Result<ObjectRow, Error> {
    db::objects::find_for_update(conn, "webhook", name)
        .await?
        .ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Error {
    Error::NotFound(format!("webhook {name:?}"))
}

async fn queue_delivery(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    webhook: &ObjectRow,
    kind: &'static str,
    verb: &str,
    row: DeliveryRow,
) -> Result<Effect, Error> {
    if db::webhooks::list_queued(conn, webhook.id).await?.len() >= QUEUED {
        return Err(Error::conflict(
            "queue_full",
            format!("{QUEUED} deliveries are already queued; try again shortly."),
        ));
    }
    db::webhooks::insert_delivery(conn, webhook.id, &row, KEPT).await?;
    record(app, conn, actor, webhook, kind, verb).await?;
    let answer = Answer::ok(&object(row))?.status(StatusCode::CREATED);
    Ok(Effect::Done(answer.location(format!(
        "/v1/webhooks/{}/deliveries",
        webhook.name
    ))))
}

async fn record(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    webhook: &ObjectRow,
    kind: &'static str,
    verb: &str,
) -> Result<(), Error> {
    let event = actor.event(
        app.clock.now(),
        kind,
        None,
        format!("webhook {} {verb}", webhook.name),
    );
    let event = event.with(json!({ "webhook": webhook.name }));
    db::events::insert(conn, event.about(webhook.id)).await
}

/// Renders a delivery for the API.
fn object(row: DeliveryRow) -> Delivery {
    Delivery {
        id: row.id,
        event: row.event_id.0,
        seq: row.seq,
        kind: row.kind,
        reason: row.reason.to_string(),
        state: row.state.to_string(),
        attempt: row.attempt,
        at: row.at,
        status: row.status,
        error: row.error,
        duration_ms: row.duration_ms,
    }
}
