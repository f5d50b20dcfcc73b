//! Errors as answers: RFC 9457 problem+json, with headers for the caller's next step.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, header};
use serde_json::{Value, json};

use crate::error::{Error, is_full, whole_seconds};
use crate::request_id;

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = self.status();
        if status.is_server_error() {
            tracing::error!(error = ?self, "request failed");
        }
        let (code, detail, faults) = self.public();
        let title = status.canonical_reason().unwrap_or("Error");
        let mut body = json!({
            "type": "about:blank", "title": title, "status": status.as_u16(), "code": code, "detail": detail,
            "retryable": self.retryable(), "request_id": request_id::current(),
        });
        if !faults.is_empty() {
            body["errors"] = serde_json::to_value(faults).unwrap_or(Value::Null);
        }
        if let Self::Taken(taken) = &self
            && let Some(existing) = &taken.existing
        {
            body["existing"] = serde_json::to_value(existing).unwrap_or(Value::Null);
        }
        let mut response = (status, body.to_string()).into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        for (name, text) in self.headers() {
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

impl Error {
    /// Headers with information for a retry: the current ETag, the wait in seconds, or a link to
    /// the blocker.
    fn headers(&self) -> Vec<(HeaderName, String)> {
        match self {
            Self::Exists(now) | Self::Stale(now) if *now > 0 => {
                vec![(header::ETAG, format!("\"{now}\""))]
            }
            Self::Busy { operation, .. } => vec![
                (header::RETRY_AFTER, "5".into()),
                (
                    header::LINK,
                    format!("</v1/operations/{operation}>; rel=\"blocked-by\""),
                ),
            ],
            Self::SecondPerson { id, .. } => {
                vec![(
                    header::LINK,
                    format!("</v1/approvals/{id}>; rel=\"blocked-by\""),
                )]
            }
            Self::TooMany { wait_s } | Self::Delayed { wait_s } => {
                vec![(header::RETRY_AFTER, whole_seconds(*wait_s))]
            }
            Self::Unavailable(error) if is_full(error) => vec![(header::RETRY_AFTER, "30".into())],
            Self::Unavailable(_) => vec![(header::RETRY_AFTER, "2".into())],
            Self::Contended(_) => vec![(header::RETRY_AFTER, "1".into())],
            Self::Caution(_) | Self::StreamsFull => vec![(header::RETRY_AFTER, "30".into())],
            Self::TooManyStreams { .. } => vec![(header::RETRY_AFTER, "5".into())],
            Self::Unauthenticated => vec![(header::WWW_AUTHENTICATE, "Bearer".into())],
            _ => Vec::new(),
        }
    }
}
