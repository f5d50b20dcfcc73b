//! Results of use cases: JSON, with the generation and the location of the written object.

use http::StatusCode;
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
    /// The answer was given before, to the same request with the same idempotency key.
    pub replayed: bool,
}

impl Answer {
    /// 200 with a body.
    ///
    /// # Errors
    /// When the body cannot be serialised to JSON; such a failure is a bug.
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

    /// The same answer with another status.
    pub fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The same answer with the generation as ETag.
    pub fn etag(self, generation: i64) -> Self {
        Self {
            etag: Some(generation),
            ..self
        }
    }

    /// The same answer with the location of the new object or operation.
    pub fn location(self, location: impl Into<String>) -> Self {
        Self {
            location: Some(location.into()),
            ..self
        }
    }
}
