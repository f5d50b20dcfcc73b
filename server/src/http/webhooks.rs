//! What was sent to a webhook, and what a person may ask to be sent: a ping, an event once more, all that waits.

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
use crate::db::webhooks::DeliveryRow;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::writing;
use crate::intents::writing::Effect;
use crate::tasks::webhooks::{KEPT, delivery};
use crate::webhooks::PING;

/// What may wait to be sent to one webhook because people asked for it.
const QUEUED: usize = 20;

/// The routes of deliveries, and what can be asked of a webhook.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_webhook_deliveries))
        .routes(routes!(test_webhook))
        .routes(routes!(redeliver_event))
        .routes(routes!(resume_webhook))
}

/// Attempts to tell a webhook something, newest first unless `created_at` is asked for; the last 200 are kept. They are filtered by `kind`, `state` and `reason`.
#[utoipa::path(get, path = "/v1/webhooks/{name}/deliveries", tag = "webhooks",
    params(("name", description = "Name or id"), ListQuery), responses(
    (status = 200, description = "The page", body = CountedPage<Delivery>),
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
    paging::page(
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

/// Sends a ping, once, whatever state the webhook is in. How it went is in its deliveries.
#[utoipa::path(post, path = "/v1/webhooks/{name}/actions/test", tag = "webhooks",
    params(("name", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 201, description = "It will be sent", body = Delivery),
    (status = 409, description = "Too much waits already", body = Problem, content_type = "application/problem+json"),
))]
async fn test_webhook(
    State(app): State<App>,
    actor: Actor,
    Path(name): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    writing::once(&app, &actor, idempotency, &(), async |conn| {
        let webhook = locked(conn, &name).await?;
        let row = delivery("test", None, EventId::new(), PING, app.clock.now());
        queue(
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

/// Sends the event of one delivery once more, under the same id, whatever state the webhook is in. How it went is in its deliveries.
#[utoipa::path(post, path = "/v1/webhooks/{name}/actions/redeliver", tag = "webhooks", request_body = Redeliver,
    params(("name", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 201, description = "It will be sent", body = Delivery),
    (status = 409, description = "Too much waits already", body = Problem, content_type = "application/problem+json"),
))]
async fn redeliver_event(
    State(app): State<App>,
    actor: Actor,
    Path(name): Path<String>,
    idempotency: IdempotencyKey,
    Json(request): Json<Redeliver>,
) -> Result<Answer, Error> {
    writing::once(&app, &actor, idempotency, &request, async |conn| {
        let webhook = locked(conn, &name).await?;
        let before = db::webhooks::find_delivery(conn, webhook.id, request.delivery).await?;
        let unknown = || {
            Error::unprocessable(
                "/delivery",
                "not_found",
                "The webhook has no such delivery any more.",
            )
        };
        let before = before.ok_or_else(unknown)?;
        let row = delivery(
            "redelivery",
            before.seq,
            before.event_id,
            &before.kind,
            app.clock.now(),
        );
        queue(
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

/// Lets a webhook that was given up go on where it stopped, at once; one that waits for its next attempt tries it now.
#[utoipa::path(post, path = "/v1/webhooks/{name}/actions/resume", tag = "webhooks",
    params(("name", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 200, description = "It goes on", body = ref("#/components/schemas/Webhook")),
))]
async fn resume_webhook(
    State(app): State<App>,
    actor: Actor,
    Path(name): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    writing::once(&app, &actor, idempotency, &(), async |conn| {
        let webhook = locked(conn, &name).await?;
        db::webhooks::start(conn, webhook.id, app.clock.now()).await?;
        record(&app, conn, &actor, &webhook, "webhook.resumed", "goes on").await?;
        read::answer::<WebhookSpec>(&app, conn, webhook)
            .await
            .map(Effect::Done)
    })
    .await
}

async fn locked(conn: &mut PgConnection, name: &str) -> Result<ObjectRow, Error> {
    db::objects::find_for_update(conn, "webhook", name)
        .await?
        .ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Error {
    Error::NotFound(format!("webhook {name:?}"))
}

async fn queue(
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
            format!("{QUEUED} wait to be sent already; look again shortly."),
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

/// A delivery as it is answered.
fn object(row: DeliveryRow) -> Delivery {
    Delivery {
        id: row.id,
        event: row.event_id.0,
        seq: row.seq,
        kind: row.kind,
        reason: row.reason,
        state: row.state,
        attempt: row.attempt,
        at: row.at,
        status: row.status,
        error: row.error,
        duration_ms: row.duration_ms,
    }
}
