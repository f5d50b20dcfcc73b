//! Pauses between attempts. Each pause doubles up to a limit. Jitter prevents a thousand jobs from
//! retrying at the same instant.

use std::time::Duration;

use tokio::time::Instant;

use super::client::error::CallError;

const FIRST: Duration = Duration::from_millis(500);

/// The pauses of a series of attempts.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    cap: Duration,
}

impl Backoff {
    /// Starts at half a second and doubles up to `cap`.
    pub fn new(cap: Duration) -> Self {
        Self {
            next: FIRST.min(cap),
            cap,
        }
    }

    /// Waits for a random time between half and all of the current pause.
    pub async fn pause(&mut self) {
        let due = self.next;
        self.next = (due * 2).min(self.cap);
        tokio::time::sleep(due.mul_f64(rand::random_range(0.5..=1.0))).await;
    }

    /// Resets to the short first pause after a success.
    pub fn reset(&mut self) {
        self.next = FIRST.min(self.cap);
    }
}

/// Repeats a call while the server is unreachable, until `deadline`. Any other result is returned
/// at once.
///
/// # Errors
/// The latest [`CallError`].
pub async fn until<T, F: Future<Output = Result<T, CallError>>>(
    deadline: Instant,
    mut call: impl FnMut() -> F,
) -> Result<T, CallError> {
    let mut backoff = Backoff::new(Duration::from_secs(15));
    loop {
        match call().await {
            Err(error) if error.retryable() && Instant::now() < deadline => {
                tracing::debug!(%error, "call failed; retrying");
                backoff.pause().await;
            }
            answer => return answer,
        }
    }
}
