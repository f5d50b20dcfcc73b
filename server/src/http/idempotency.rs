//! `Idempotency-Key` on POST: the answer is stored in the transaction of its effect, and given again to the same request.

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;
use jiff::Timestamp;
use muster_core::values::Digest;
use serde::Serialize;
use sqlx::PgConnection;

use super::answer::Answer;
use crate::auth::Actor;
use crate::db;
use crate::db::idempotency::StoredAnswer;
use crate::error::Error;

const LONGEST: usize = 128;

/// The key of a request, if it has one, and what the request was sent to.
#[derive(Clone, Debug)]
pub struct IdempotencyKey {
    key: Option<String>,
    target: String,
}

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Error> {
        let key = match parts.headers.get("idempotency-key").map(|value| value.to_str()) {
            None => None,
            Some(Ok(key)) if (1..=LONGEST).contains(&key.len()) => Some(key.to_owned()),
            Some(_) => {
                let detail = format!("1 to {LONGEST} visible ASCII characters");
                return Err(Error::invalid("Idempotency-Key", "invalid_value", detail));
            }
        };
        Ok(Self { key, target: format!("{} {}", parts.method, parts.uri.path()) })
    }
}

/// A request under its key, until its answer is stored.
#[derive(Clone, Debug)]
pub struct Once {
    actor: String,
    key: Option<String>,
    request: [u8; 32],
}

/// Whether the effect is still to happen.
#[derive(Clone, Debug)]
pub enum Begun {
    First(Once),
    Replay(Box<Answer>),
}

impl IdempotencyKey {
    /// Of a form, which has none: what it asks for twice is refused by what it changed the first time.
    pub fn none() -> Self {
        Self { key: None, target: String::new() }
    }

    /// Looks for the answer that the same request had; waits for one that is under way.
    ///
    /// # Errors
    /// 422 when the key was used for another request.
    pub async fn begin(self, conn: &mut PgConnection, actor: &Actor, body: &impl Serialize) -> Result<Begun, Error> {
        let body = serde_json::to_string(body).map_err(Error::internal)?;
        let request = Digest::of(format!("{}\n{body}", self.target).as_bytes()).0;
        let once = Once { actor: actor.name.clone(), key: self.key, request };
        let Some(key) = &once.key else { return Ok(Begun::First(once)) };
        match db::idempotency::find(conn, &actor.name, key).await? {
            None => Ok(Begun::First(once)),
            Some(stored) if stored.request != request => {
                Err(Error::unprocessable("Idempotency-Key", "key_reused", "The key was used for another request."))
            }
            Some(stored) => replay(stored).map(|answer| Begun::Replay(Box::new(answer))),
        }
    }
}

fn replay(stored: StoredAnswer) -> Result<Answer, Error> {
    let status = u16::try_from(stored.status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let status = status.ok_or_else(|| Error::internal(anyhow::anyhow!("stored status {}", stored.status)))?;
    Ok(Answer { status, body: stored.body, etag: None, location: stored.location, replayed: true })
}

impl Once {
    /// Stores the answer beside its effect.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn store(self, conn: &mut PgConnection, answer: &Answer, now: Timestamp) -> Result<(), Error> {
        let Some(key) = self.key else { return Ok(()) };
        let stored = StoredAnswer {
            request: self.request.to_vec(),
            status: i32::from(answer.status.as_u16()),
            body: answer.body.clone(),
            location: answer.location.clone(),
        };
        db::idempotency::insert(conn, &self.actor, &key, &stored, now).await
    }
}
