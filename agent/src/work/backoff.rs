//! Pauses between tries: doubling, with jitter so that a thousand jobs do not come back in one instant, and capped.

use std::time::Duration;

use tokio::time::Instant;

use super::client::error::CallError;

const FIRST: Duration = Duration::from_millis(500);

/// The pauses of one row of tries.
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

    /// Waits between half and the whole of the pause that is due.
    pub async fn pause(&mut self) {
        let due = self.next;
        self.next = (due * 2).min(self.cap);
        tokio::time::sleep(due.mul_f64(rand::random_range(0.5..=1.0))).await;
    }

    /// Something worked: the next pause is a short one again.
    pub fn reset(&mut self) {
        self.next = FIRST.min(self.cap);
    }
}

/// Repeats a call while the server is away, until `deadline`; any other answer ends it.
///
/// # Errors
/// The last [`CallError`].
pub async fn until<T, F: Future<Output = Result<T, CallError>>>(
    deadline: Instant,
    mut call: impl FnMut() -> F,
) -> Result<T, CallError> {
    let mut backoff = Backoff::new(Duration::from_secs(15));
    loop {
        match call().await {
            Err(error) if error.retryable() && Instant::now() < deadline => {
                tracing::debug!(%error, "calling again");
                backoff.pause().await;
            }
            answer => return answer,
        }
    }
}
