//! The `Idempotency-Key` header of a request.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::error::Error;
use crate::intents::idempotency::IdempotencyKey;

const LONGEST: usize = 128;

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Error> {
        let key = match parts
            .headers
            .get("idempotency-key")
            .map(|value| value.to_str())
        {
            None => None,
            Some(Ok(key)) if (1..=LONGEST).contains(&key.len()) => Some(key.to_owned()),
            Some(_) => {
                let detail = format!("1 to {LONGEST} visible ASCII characters");
                return Err(Error::invalid("Idempotency-Key", "invalid_value", detail));
            }
        };
        Ok(Self {
            key,
            target: format!("{} {}", parts.method, parts.uri.path()),
        })
    }
}
