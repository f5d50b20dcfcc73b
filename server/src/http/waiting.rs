//! Long polls: a bounded wait for a change, in which nothing is held.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::Error;

/// Below the minute after which proxies give up.
const LONGEST: Duration = Duration::from_secs(55);
/// Another replica may have made the change: look at least this often.
const POLL: Duration = Duration::from_secs(1);

/// `55s`.
///
/// # Errors
/// 400 for anything else, or more than 55 seconds.
pub fn duration(text: &str) -> Result<Duration, Error> {
    let seconds = text
        .strip_suffix('s')
        .and_then(|number| number.parse().ok())
        .map(Duration::from_secs);
    let wrong = || Error::invalid("wait", "invalid_value", "Seconds up to 55s, as 30s.");
    seconds.filter(|wait| *wait <= LONGEST).ok_or_else(wrong)
}

/// Returns when something may have changed, at the latest after a poll's length or at the deadline.
pub async fn change(changes: &mut watch::Receiver<i64>, deadline: Instant) {
    let until = deadline.min(Instant::now() + POLL);
    // A closed channel means the server is going down; the poll's length still bounds the loop.
    if let Ok(Err(_)) = tokio::time::timeout_at(until, changes.changed()).await {
        tokio::time::sleep_until(until).await;
    }
}
