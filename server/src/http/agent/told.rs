//! Bodies with text from nodes, BMCs and the network, stored without U+0000, because Postgres
//! cannot store the character. Rejecting such a body would keep a job open for ever when a machine
//! has garbage in a serial or an error text.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::document;
use crate::error::Error;

/// A JSON body as its type, without U+0000 in any text.
#[derive(Clone, Debug)]
pub(super) struct Told<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Told<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|_| Error::TooLarge)?;
        let parsed = serde_json::from_slice(&bytes);
        let mut value =
            parsed.map_err(|error| Error::invalid("", "malformed_json", error.to_string()))?;
        strip(&mut value);
        document::typed(&value).map(Self)
    }
}

/// Recursion is bounded by the parser: at most 128 levels.
fn strip(value: &mut Value) {
    match value {
        Value::String(text) => text.retain(|c| c != '\0'),
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Object(members) => {
            if members.keys().any(|key| key.contains('\0')) {
                *members = std::mem::take(members)
                    .into_iter()
                    .map(|(key, value)| (key.replace('\0', ""), value))
                    .collect();
            }
            members.values_mut().for_each(strip);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
