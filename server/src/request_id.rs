//! An id for each request: taken from the caller or generated here. The id is written to the
//! answer, to events and to every log line. A log line of a request names the route, and never the
//! path, the query, a header or the body.

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};
use tracing::field::Empty;
use tracing::{Instrument as _, Span};
use uuid::Uuid;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const LONGEST: usize = 64;

tokio::task_local! {
    static CURRENT: String;
}

/// Returns the id of the request under way. Outside a request, returns `None`.
pub fn current() -> Option<String> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Returns the id set by [`assign`] in a request's headers.
pub fn of(headers: &HeaderMap) -> Option<String> {
    headers
        .get(HEADER)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned)
}

/// Outermost middleware: assigns an id to every request, copies the id to the answer, and logs the
/// answer's status and time in milliseconds.
pub async fn assign(mut request: Request, next: Next) -> Response {
    let given = of(request.headers()).filter(|id| fits(id));
    let id = given.unwrap_or_else(|| Uuid::now_v7().to_string());
    let value =
        HeaderValue::from_str(&id).expect("ids are letters, digits, dots, dashes and underscores");
    request.headers_mut().insert(HEADER, value.clone());
    let (shown, began) = (Shown::of(&request), Instant::now());
    let span = span_of(&request, &id);
    let answered = next.run(request).instrument(span.clone());
    let mut response = CURRENT.scope(id, answered).await;
    span.in_scope(|| shown.log(&response, began));
    response.headers_mut().insert(HEADER, value);
    response
}

/// Adds fields of the current request to all later log lines of the request. Text from callers is
/// passed as `&str`, because the log then escapes line breaks.
pub fn note(fields: &[(&'static str, &dyn tracing::Value)]) {
    let span = Span::current();
    for (name, value) in fields {
        span.record(*name, *value);
    }
}

/// Returns the span of a request. A span at the level `error` is kept by every filter, so a warning
/// always carries the fields.
fn span_of(request: &Request, id: &str) -> Span {
    tracing::error_span!(
        "request",
        request_id = id,
        method = %request.method(),
        route = route(request),
        dry_run = Empty,
        actor = Empty,
        agent = Empty,
        node = Empty,
        operation = Empty,
        job = Empty,
        attempt = Empty,
    )
}

/// Returns the pattern of the route, such as `/v1/nodes/{node}`.
fn route(request: &Request) -> &str {
    let matched = request.extensions().get::<MatchedPath>();
    matched.map_or("unknown", MatchedPath::as_str)
}

/// The level of the line about the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// Writes of people and programs.
    Info,
    /// Reads, and the frequent calls of agents.
    Debug,
}

impl Shown {
    fn of(request: &Request) -> Self {
        if request.method().is_safe() || route(request).starts_with("/agent/") {
            Self::Debug
        } else {
            Self::Info
        }
    }

    fn log(self, response: &Response, began: Instant) {
        let status = response.status().as_u16();
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        match self {
            Self::Info => tracing::info!(status, took_ms, "request answered"),
            Self::Debug => tracing::debug!(status, took_ms, "request answered"),
        }
    }
}

/// Checks an id from a caller. Ids are written to logs and headers, so only a few plain characters
/// are allowed.
fn fits(id: &str) -> bool {
    (1..=LONGEST).contains(&id.len())
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}
