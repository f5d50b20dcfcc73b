//! What a long wait is given: until when, whether it must stop, and whom to tell what it waits for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bounds and voice of one wait.
#[derive(Clone)]
pub struct Watch {
    /// On our own monotonic clock.
    pub deadline: Instant,
    cancel: CancellationToken,
    tell: Arc<dyn Fn(String) + Send + Sync>,
}

/// Why a wait ended before what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    Cancelled,
    DeadlinePassed,
}

impl Watch {
    /// `tell` gets one sentence whenever what is awaited, or what was seen last, changes; it must not block.
    pub fn new(
        deadline: Instant,
        cancel: CancellationToken,
        tell: impl Fn(String) + Send + Sync + 'static,
    ) -> Self {
        Self {
            deadline,
            cancel,
            tell: Arc::new(tell),
        }
    }

    /// Says what is awaited and what was seen last.
    pub fn waiting_for(&self, sentence: impl Into<String>) {
        (self.tell)(sentence.into());
    }

    /// Sleeps, unless the wait is over.
    ///
    /// # Errors
    /// [`Stopped`], at the deadline at the latest.
    pub async fn pause(&self, time: Duration) -> Result<(), Stopped> {
        let wake = Instant::now() + time;
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(Stopped::Cancelled),
            () = tokio::time::sleep_until(wake.min(self.deadline)) => {}
        }
        match wake < self.deadline {
            true => Ok(()),
            false => Err(Stopped::DeadlinePassed),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
