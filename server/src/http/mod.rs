//! HTTP: the operator API, and the separate listener for agents. A handler parses and authorises
//! the request, opens a transaction, writes a request and its event, and commits. Handlers never
//! set a node's state.

pub mod agent; // The agents' listener
pub mod agents; // Enrolment of agents
pub mod alerts; // Alerts of monitoring about nodes
pub mod answer; // Successes: JSON, ETag, Location
pub mod approvals; // A second person
pub mod audit; // The newest seal of the history
pub mod blobs; // Content-addressed files
pub mod break_glass; // Whether the local administrator may sign in
pub mod breakers; // Recovery stopped by the circuit breaker
pub mod cabling; // Declared cables compared with LLDP
pub mod caution; // The database is older than its clients
pub mod claims; // Binding nodes to pools
pub mod declared; // The contract of all declared kinds
pub mod disruption; // The disruption budget, and write-offs
pub mod dry_run; // Plan of a request, without effect
pub mod events; // The history, as pages and as a stream
pub mod extract; // Extractors with uniform errors
pub(crate) mod follower; // One open event stream
pub mod front; // Clients behind trusted proxies, and their transport
pub mod health; // Up, ready, metrics, scrape targets
pub mod idempotency; // The `Idempotency-Key` header
pub mod kinds; // The special rules of each declared kind
pub mod limits; // Rate limits for each caller
pub mod links; // OpenAPI links of each write
pub mod listener; // Accepts connections, within bounds
pub mod nodes; // Registration, actions, facts, history
pub mod openapi; // The OpenAPI document
pub mod operations; // Requested work and its progress
pub mod paging; // Keyset pages
pub mod pairs; // Nodes of a pool, measured against each other
pub mod plan; // Plan for a set of objects
pub mod preconditions; // If-Match and If-None-Match
pub mod problem; // Errors as answers
pub mod revisions; // Documents that the nodes of a pool install
pub mod rollouts; // The claims of a pool, moving to a revision
pub mod source; // The source of a connection or a request
pub mod tokens; // Tokens of machines
pub mod users; // People
pub mod waiting; // Long polls
pub mod waivers; // Gates counted as passed
pub mod webhooks; // Deliveries of webhooks

use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::error::Error;
use crate::intents::references::Table;

/// The longest time of a handler, above the longest long poll (55 s). Uploads have a separate
/// timeout.
const TIMEOUT: Duration = Duration::from_secs(75);

/// The REST routes with their OpenAPI description.
pub(crate) fn rest() -> OpenApiRouter<App> {
    let timed = OpenApiRouter::with_openapi(openapi::base_document())
        .merge(kinds::router())
        .merge(nodes::router())
        .merge(claims::router())
        .merge(operations::router())
        .merge(pairs::router())
        .merge(disruption::router())
        .merge(revisions::router())
        .merge(rollouts::router())
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

/// Builds the OpenAPI document for `GET /openapi.json` and docs/openapi.json.
pub fn description() -> serde_json::Value {
    openapi::complete_document(&rest().split_for_parts().1)
}

/// Returns the possible references of each kind: a JSON pointer, where `*` is any item or member,
/// and the kind of the target.
pub fn references() -> Vec<(&'static str, Table)> {
    kinds::list_references()
}

/// Answers 503 after [`TIMEOUT`], as for an unavailable database, because only the database can
/// block a handler for so long.
async fn limit_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Error::Unavailable(sqlx::Error::PoolTimedOut).into_response(),
    }
}
