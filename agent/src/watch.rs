//! The context of a long wait: deadline, cancellation, and a receiver for awaited conditions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Limits of a wait, and the receiver of the awaited condition.
#[derive(Clone)]
pub struct Watch {
    /// Deadline by the local monotonic clock.
    pub deadline: Instant,
    cancel: CancellationToken,
    tell: Arc<dyn Fn(String) + Send + Sync>,
}

/// The reason why a wait ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    Cancelled,
    DeadlinePassed,
}

impl Watch {
    /// `tell` receives the awaited condition and the last seen state, as a noun phrase. The function
    /// must not block.
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

    /// Reports the awaited condition and the last seen state: `Slurm to forget n1: the controller
    /// still lists it`.
    pub fn waiting_for(&self, thing: impl Into<String>) {
        (self.tell)(thing.into());
    }

    /// Sleeps for `time`, unless the wait ends first.
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
