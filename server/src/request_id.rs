//! An id for each request: taken from the caller or generated here. The id is written to the
//! answer, to events and to every log line.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};
use tracing::Instrument as _;
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

/// Outermost middleware: assigns an id to every request and copies the id to the answer.
pub async fn assign(mut request: Request, next: Next) -> Response {
    let given = of(request.headers()).filter(|id| fits(id));
    let id = given.unwrap_or_else(|| Uuid::now_v7().to_string());
    let value =
        HeaderValue::from_str(&id).expect("ids are letters, digits, dots, dashes and underscores");
    request.headers_mut().insert(HEADER, value.clone());
    let span =
        tracing::info_span!("request", id, method = %request.method(), path = request.uri().path());
    let mut response = CURRENT.scope(id, next.run(request).instrument(span)).await;
    response.headers_mut().insert(HEADER, value);
    response
}

/// Checks an id from a caller. Ids are written to logs and headers, so only a few plain characters
/// are allowed.
fn fits(id: &str) -> bool {
    (1..=LONGEST).contains(&id.len())
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}
