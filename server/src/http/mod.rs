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
pub mod problem; // Errors as answers
pub mod source; // Where a connection or a request comes from
pub mod tokens; // Tokens of machines
pub mod users; // People
pub mod waiting; // Long polls
pub mod waivers; // Gates that count as passed all the same
pub mod webhooks; // What webhooks were sent

use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::error::Error;

/// Longer than any long poll. Uploads have their own clock.
const TIMEOUT: Duration = Duration::from_secs(75);

/// The REST routes with their description.
pub(crate) fn rest() -> OpenApiRouter<App> {
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

/// Nothing but the database can keep a handler this long: the answer says so.
async fn limit_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Error::Unavailable(sqlx::Error::PoolTimedOut).into_response(),
    }
}
