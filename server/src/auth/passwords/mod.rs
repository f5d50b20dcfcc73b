//! Passwords: Argon2id with the crate's parameters (19 MiB, 2 passes: OWASP's first
//! recommendation). A hash is slow by design. Hashes run on the blocking pool, and only a few run
//! at once: a storm of wrong passwords must not exhaust the server's memory or delay other users.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use axum::extract::FromRequestParts;
use http::request::Parts;
use muster_core::values::Secret;

use self::queue::{Queue, Turn};
use crate::error::Error;

mod queue; // Turns at the hash

/// Longest password checked, in bytes.
const LONGEST: usize = 1024;
/// Hashes running at once.
const TURNS: usize = 2;
/// Most logins of strangers waiting at once. A further login gets status 429.
const STRANGERS: usize = 8;
/// Most logins waiting in each other lane: an office of 200 people behind one address.
const KNOWN: usize = 200;
/// Longest wait of a login. After a longer wait the login gets status 429.
const PATIENCE: Duration = Duration::from_secs(30);
/// Shortest `Retry-After` of the 429 answer.
const RETRY: Duration = Duration::from_secs(2);
/// Time between the ends of two hashes on a slow processor, with all turns in use.
const HASH_EVERY: Duration = Duration::from_millis(50);

static QUEUE: LazyLock<Arc<Queue>> =
    LazyLock::new(|| Queue::new(TURNS, Lane::ALL.map(Lane::places)));

/// The lane in which a login waits for a turn. Lanes are served in this order, and each lane has
/// its own places, so strangers never fill the places of other lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lane {
    /// A browser with a session cookie, valid or expired.
    Browser,
    /// A source address with an accepted credential in the past.
    Source,
    #[default]
    Stranger,
}

impl Lane {
    pub const ALL: [Self; 3] = [Self::Browser, Self::Source, Self::Stranger];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Browser => "browser",
            Self::Source => "source",
            Self::Stranger => "stranger",
        }
    }

    /// The number of places for waiting logins.
    fn places(self) -> usize {
        match self {
            Self::Browser | Self::Source => KNOWN,
            Self::Stranger => STRANGERS,
        }
    }
}

/// The caller of a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    pub lane: Lane,
    /// The source of the request as text. Empty: unknown.
    pub source: String,
}

impl From<Lane> for Caller {
    fn from(lane: Lane) -> Self {
        Self {
            lane,
            source: String::new(),
        }
    }
}

/// The caller found by the rate limits.
impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// Waits for a turn at the hash.
///
/// # Errors
///
/// [`Error::TooMany`] when the lane is full, or the wait was too long.
pub async fn turn(lane: Lane) -> Result<Turn, Error> {
    let turn = tokio::time::timeout(PATIENCE, QUEUE.turn(lane)).await;
    turn.ok().flatten().ok_or_else(|| Error::TooMany {
        wait_s: guess_wait(lane).as_secs_f64(),
    })
}

/// Returns the time in which the logins ahead of a new login are answered: the logins of the lane,
/// and of the lanes served before.
fn guess_wait(lane: Lane) -> Duration {
    let lanes = Lane::ALL.into_iter().take(lane as usize + 1);
    let ahead: usize = lanes.map(count_waiting).sum();
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    HASH_EVERY.saturating_mul(ahead).clamp(RETRY, PATIENCE)
}

/// Returns the number of logins waiting in a lane.
pub fn count_waiting(lane: Lane) -> usize {
    QUEUE.count_waiting(lane)
}

/// Returns the PHC string of a password.
///
/// # Errors
///
/// When the system has no randomness for the salt.
pub async fn hash(password: Secret) -> Result<String, Error> {
    let turn = turn(Lane::Browser).await?;
    slowly(turn, move || {
        let hash = Argon2::default().hash_password(password.reveal().as_bytes());
        hash.map(|hash| hash.to_string())
            .map_err(|error| Error::internal(anyhow::anyhow!("argon2: {error}")))
    })
    .await?
}

/// Returns whether a password matches the hash. Without a hash the same work is done, because an
/// unknown name must not answer faster.
///
/// # Errors
///
/// When the work could not be run.
pub async fn verify(turn: Turn, password: Secret, hash: Option<String>) -> Result<bool, Error> {
    slowly(turn, move || {
        if password.reveal().len() > LONGEST {
            return false;
        }
        match hash.as_deref().map(PasswordHash::new) {
            Some(Ok(hash)) => Argon2::default()
                .verify_password(password.reveal().as_bytes(), &hash)
                .is_ok(),
            Some(Err(_)) | None => {
                let _same_work = Argon2::default().hash_password(password.reveal().as_bytes());
                false
            }
        }
    })
    .await
}

/// Runs the work on the blocking pool. The turn ends with the work, not with the caller: a
/// disconnected browser does not free a place early.
async fn slowly<T: Send + 'static>(
    turn: Turn,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let work = move || {
        let _turn = turn;
        work()
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(Error::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_password_verifies() {
        let hash = hash(Secret::new("correct horse")).await.unwrap();
        assert!(hash.starts_with("$argon2id$"));
        let verifies = async |password: &str, hash: Option<String>| {
            let turn = turn(Lane::Stranger).await.unwrap();
            verify(turn, Secret::new(password), hash).await.unwrap()
        };
        assert!(verifies("correct horse", Some(hash.clone())).await);
        assert!(!verifies("battery staple", Some(hash)).await);
        assert!(!verifies("correct horse", None).await);
    }
}
