//! The webhooks, and the deliveries of one chosen webhook.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use muster_api::webhooks::{WebhookSpec, WebhookState, WebhookStatus};
use serde::Deserialize;

use super::chips::{self, Chip};
use super::format::{self, Moment};
use super::frame::{Frame, Live, Section, Visit};
use crate::access::Sight;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::db::webhooks::DeliveryRow;
use crate::document;
use crate::error::Error;
use crate::http::declared::Declared as _;
use crate::http::extract::Query;
use crate::tasks::webhooks::MOST;

/// Most deliveries of one page.
const ROWS: i64 = 50;

#[derive(Template, WebTemplate)]
#[template(path = "webhooks.html")]
pub(super) struct Page {
    frame: Frame,
    webhooks: Vec<Webhook>,
    /// Name of the chosen webhook. Empty when deliveries are not shown.
    name: String,
    deliveries: Vec<Delivery>,
}

struct Webhook {
    name: String,
    chip: Chip,
    because: String,
    topics: String,
    site: String,
    url: String,
    seq: i64,
    next: Option<Moment>,
}

struct Delivery {
    id: String,
    at: Moment,
    chip: Chip,
    kind: String,
    seq: String,
    attempt: i32,
    reason: String,
    status: String,
    took: String,
    error: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WebhooksQuery {
    name: String,
}

/// Lists every webhook, and the deliveries of the chosen webhook.
pub(super) async fn list_webhooks(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Query(query): Query<WebhooksQuery>,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let most = i64::try_from(MOST).unwrap_or(i64::MAX);
    let rows = db::objects::list(&mut conn, "webhook", &Sight::new(), most).await?;
    let mut webhooks = Vec::with_capacity(rows.len());
    let mut deliveries = Vec::new();
    for row in rows {
        if row.name == query.name {
            let tried = db::webhooks::list_deliveries(&mut conn, row.id, ROWS).await?;
            deliveries = tried
                .into_iter()
                .map(|row| delivery(row, visit.now))
                .collect();
        }
        webhooks.push(match document::stored::<WebhookSpec>(&row) {
            Ok(spec) => {
                let status = WebhookSpec::status(&app, &mut conn, &row).await?;
                webhook(&row, spec, status, visit.now)
            }
            Err(error) => unreadable(&row, &error),
        });
    }
    // An unknown name chooses no webhook, so deliveries are left out.
    let name = webhooks
        .iter()
        .find(|one| one.name == query.name)
        .map(|one| one.name.clone())
        .unwrap_or_default();
    let (cli, path) = match name.as_str() {
        "" => ("muster webhook list".to_owned(), "/v1/webhooks".to_owned()),
        name => (
            format!("muster webhook deliveries {name}"),
            format!("/v1/webhooks/{name}/deliveries"),
        ),
    };
    let frame = Frame::new(&visit, &actor, Section::Webhooks, "Webhooks")
        .by_hand(cli, &path)
        .live(Live::Any);
    Ok(Page {
        frame,
        webhooks,
        name,
        deliveries,
    })
}

/// Returns a line for a webhook with an unreadable stored spec: the name, and advice for a repair.
fn unreadable(row: &ObjectRow, error: &Error) -> Webhook {
    let (_, because, _) = error.public();
    Webhook {
        name: row.name.clone(),
        chip: chips::outcome(WebhookState::Stopped.as_str()),
        because: format::cut(&because, 200),
        topics: String::new(),
        site: String::new(),
        url: String::new(),
        seq: 0,
        next: None,
    }
}

fn webhook(row: &ObjectRow, spec: WebhookSpec, status: WebhookStatus, now: Timestamp) -> Webhook {
    Webhook {
        name: row.name.clone(),
        chip: chips::outcome(status.state.as_str()),
        because: format::cut(&status.because.unwrap_or_default(), 200),
        topics: format::cut(&spec.topics.join(", "), 200),
        site: spec.site.unwrap_or_default(),
        url: format::cut(&spec.url, 100),
        seq: status.delivered_seq,
        next: status.next_attempt_at.map(|at| format::moment(at, now)),
    }
}

fn delivery(row: DeliveryRow, now: Timestamp) -> Delivery {
    let took = row
        .duration_ms
        .map(|ms| format::duration(SignedDuration::from_millis(i64::from(ms))));
    Delivery {
        id: row.id.to_string(),
        at: format::moment(row.at, now),
        chip: chips::outcome(row.state.as_str()),
        kind: row.kind,
        seq: row.seq.map(|seq| seq.to_string()).unwrap_or_default(),
        attempt: row.attempt,
        reason: row.reason.to_string(),
        status: row
            .status
            .map(|status| status.to_string())
            .unwrap_or_default(),
        took: took.unwrap_or_default(),
        error: row.error.unwrap_or_default(),
    }
}
