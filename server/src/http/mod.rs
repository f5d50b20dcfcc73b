//! HTTP: the operator API, and the agents' own listener. A handler parses, authorises, opens a transaction, writes a wish and its event,
//! commits. It never sets a node's state.

pub mod agent; // The agents' listener
pub mod agents; // Enrolment of agents
pub mod alerts; // What monitoring says of nodes
pub mod answer; // Successes: JSON, ETag, Location
pub mod approvals; // A second person
pub mod audit; // The seal over the history
pub mod blobs; // Content-addressed files
pub mod break_glass; // Whether the local administrator may sign in
pub mod breakers; // What nothing is done about by itself any more
pub mod cabling; // Declared cables against what was heard of switches
pub mod caution; // The database is older than what others remember
pub mod claims; // Binding nodes to pools
pub mod declared; // The contract that all declared kinds share
pub mod document; // JSON from callers
pub mod dry_run; // What a request would do
pub mod events; // The history, as pages and as a stream
pub mod extract; // Our own extractors
pub mod health; // Up, ready, metrics, scrape targets
pub mod idempotency; // The same request again has the same effect once
pub mod kinds; // What each declared kind adds
pub mod limits; // How many requests a caller may send
pub mod links; // Where each write leads
pub mod listener; // Accepts connections, within bounds
pub mod nodes; // Registration, actions, facts, history
pub mod openapi; // The description of the contract
pub mod operations; // What was asked for, and how it stands
pub mod paging; // Keyset pages
pub mod pairs; // Nodes of a pool, measured against each other
pub mod plan; // What a set of objects would do
pub mod preconditions; // If-Match and If-None-Match
pub mod request_id; // One id per request
pub mod source; // Where a connection or a request comes from
pub mod standing; // What an operation waits for, and what came of it
pub mod taken; // Whose a key is that is taken
pub mod tokens; // Tokens of machines
pub mod users; // People
pub mod waiting; // Long polls
pub mod waivers; // Gates that count as passed all the same
pub mod webhooks; // What webhooks were sent
pub mod writing; // One transaction per request, once per key

use std::any::Any;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Router, middleware};
use http::{HeaderName, HeaderValue, header};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa_axum::router::OpenApiRouter;

use self::extract::Json;
use self::limits::{Limits, Rates};
use crate::app::App;
use crate::auth::cross_site;
use crate::error::Error;

/// Longer than any long poll. Uploads have their own clock.
const TIMEOUT: Duration = Duration::from_secs(75);

/// Everything is from here and nothing is inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Everything that people, browsers and machines reach on the public listener.
pub fn router(app: App) -> Router {
    limited(app, Rates::default())
}

/// The same, for callers who may send so much.
pub fn limited(app: App, rates: Rates) -> Router {
    let (rest, description) = rest().split_for_parts();
    let description = openapi::complete(&description);
    let limits = Limits::new(rates, app.clock.clone());
    let rest = rest
        .route("/openapi.json", get(async move || Json(description)))
        .with_state(app.clone());
    let fixed =
        |name, value| SetResponseHeaderLayer::if_not_present(name, HeaderValue::from_static(value));
    rest.merge(crate::ui::router(app))
        .fallback(async || Error::NotFound("What the path names".into()))
        .method_not_allowed_fallback(async || Error::MethodNotAllowed)
        .layer(middleware::from_fn(cross_site::refuse))
        .layer(middleware::from_fn_with_state(limits, limits::hold))
        .layer(middleware::from_fn(crate::ui::problems::as_pages))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(CompressionLayer::new())
        .layer(fixed(header::CONTENT_SECURITY_POLICY, POLICY))
        .layer(fixed(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(fixed(header::REFERRER_POLICY, "same-origin"))
        .layer(fixed(
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ))
        .layer(fixed(header::CACHE_CONTROL, "no-store"))
        .layer(middleware::from_fn(request_id::assign))
}

/// The REST routes with their description.
fn rest() -> OpenApiRouter<App> {
    let timed = OpenApiRouter::with_openapi(openapi::base())
        .merge(kinds::router())
        .merge(nodes::router())
        .merge(claims::router())
        .merge(operations::router())
        .merge(pairs::router())
        .merge(events::router())
        .merge(agents::router())
        .merge(alerts::router())
        .merge(approvals::router())
        .merge(waivers::router())
        .merge(audit::router())
        .merge(break_glass::router())
        .merge(cabling::router())
        .merge(breakers::router())
        .merge(caution::router())
        .merge(plan::router())
        .merge(tokens::router())
        .merge(users::router())
        .merge(webhooks::router())
        .merge(health::router())
        .layer(DefaultBodyLimit::max(declared::SMALL_BODY))
        .layer(middleware::from_fn(limit_time));
    timed
        .merge(blobs::router())
        .layer(middleware::from_fn(dry_run::read))
}

/// The description of the contract: `GET /openapi.json`, and docs/openapi.json.
pub fn description() -> serde_json::Value {
    openapi::complete(&rest().split_for_parts().1)
}

/// Wakes whoever may care about what was just committed. The polls are the truth; this only makes them early.
pub fn wake(app: &App) {
    app.wake_engine.notify_one();
    app.wake_sites.notify_waiters();
    app.wake_readers.send_modify(|turn| *turn += 1);
}

/// Nothing but the database can keep a handler this long: the answer says so.
async fn limit_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Error::Unavailable(sqlx::Error::PoolTimedOut).into_response(),
    }
}

fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    Error::internal(anyhow::anyhow!("a handler panicked: {text}")).into_response()
}
