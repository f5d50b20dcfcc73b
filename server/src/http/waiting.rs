//! Long polls: a bounded wait for a change, without a database connection.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::Error;

/// The longest wait, below the one-minute timeout of common proxies.
const LONGEST: Duration = Duration::from_secs(55);
/// The interval between two reads, because another replica may have made the change.
const POLL: Duration = Duration::from_secs(1);

/// Parses a wait in seconds, for example `55s`.
///
/// # Errors
/// 400 for another form, or more than 55 seconds.
pub fn parse_duration(text: &str) -> Result<Duration, Error> {
    let seconds = text
        .strip_suffix('s')
        .and_then(|number| number.parse().ok())
        .map(Duration::from_secs);
    let wrong = || {
        Error::invalid(
            "wait",
            "invalid_value",
            "Seconds up to 55s, for example 30s.",
        )
    };
    seconds.filter(|wait| *wait <= LONGEST).ok_or_else(wrong)
}

/// Returns after a possible change, at the latest after `POLL` or at the deadline.
pub async fn wait_for_change(changes: &mut watch::Receiver<i64>, deadline: Instant) {
    let until = deadline.min(Instant::now() + POLL);
    // A closed channel means a server shutdown; the sleep still bounds the loop of the caller.
    if let Ok(Err(_)) = tokio::time::timeout_at(until, changes.changed()).await {
        tokio::time::sleep_until(until).await;
    }
}
