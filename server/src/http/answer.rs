//! Answers of REST calls: JSON with its ETag and Location.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;

/// A success.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Value,
    pub etag: Option<i64>,
    pub location: Option<String>,
    /// Given before, to the same request with the same idempotency key.
    pub replayed: bool,
}

impl Answer {
    /// 200 with a body.
    ///
    /// # Errors
    /// When the body cannot be JSON, which is a bug.
    pub fn ok(body: &impl Serialize) -> Result<Self, Error> {
        let body = serde_json::to_value(body).map_err(Error::internal)?;
        Ok(Self {
            status: StatusCode::OK,
            body,
            etag: None,
            location: None,
            replayed: false,
        })
    }

    /// The same with another status.
    pub fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The same with the generation as its ETag.
    pub fn etag(self, generation: i64) -> Self {
        Self {
            etag: Some(generation),
            ..self
        }
    }

    /// The same with a place to look for what was made.
    pub fn location(self, location: impl Into<String>) -> Self {
        Self {
            location: Some(location.into()),
            ..self
        }
    }
}

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
