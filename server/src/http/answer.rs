//! Answers as HTTP responses: JSON with ETag and Location.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};

use crate::intents::answer::Answer;

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let mut headers = HeaderMap::new();
        let mut set = |name, text: Option<String>| {
            if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
                headers.insert(name, value);
            }
        };
        set(header::CONTENT_TYPE, Some("application/json".into()));
        set(
            header::ETAG,
            self.etag.map(|generation| format!("\"{generation}\"")),
        );
        set(header::LOCATION, self.location);
        set(
            header::HeaderName::from_static("idempotency-replayed"),
            self.replayed.then(|| "true".into()),
        );
        (self.status, headers, self.body.to_string()).into_response()
    }
}
