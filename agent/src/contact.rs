//! When the server was last heard, by this process's own monotonic clock. It is how an agent that is cut off knows, without asking anybody, that
//! another one may act for its site by now.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use muster_core::wire::calls::SITE_LEASE_S;

/// From then on an agent is not sure any more: two thirds of the site's lease.
const SURE: Duration = Duration::from_secs(SITE_LEASE_S * 2 / 3);
/// From then on another one may have taken over: two thirds of the lease and of the pause that a takeover makes after it.
const OVER: Duration = Duration::from_secs(SITE_LEASE_S * 4 / 3);

/// What is known of the server. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Contact(Arc<Mutex<Heard>>);

#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// When the call began that was answered last: the server said so later than that.
    asked: Option<Instant>,
    /// The server's time of that answer, in milliseconds since the epoch.
    served_at: Option<i64>,
    unneeded: bool,
}

/// What an agent may take for true about its site's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenure {
    /// Nobody else acts for the site.
    Sure,
    /// Nobody else may act yet, but the lease is not known to go on: others that answer go first.
    Unsure,
    /// Somebody else may act for the site: nothing is installed from here.
    Over,
}

impl Contact {
    /// For boot services that run without a server: nobody else acts there.
    pub fn unneeded() -> Self {
        Self(Arc::new(Mutex::new(Heard {
            unneeded: true,
            ..Heard::default()
        })))
    }

    /// Notes an answer to a call that began at `asked`.
    pub fn heard(&self, asked: Instant, served_at: Option<i64>) {
        let mut heard = self.lock();
        if heard.asked.is_none_or(|before| before <= asked) {
            *heard = Heard {
                asked: Some(asked),
                served_at: served_at.or(heard.served_at),
                ..*heard
            };
        }
    }

    /// The server's time of the latest answer, as it is shown with the next call.
    pub fn served_at(&self) -> Option<i64> {
        self.lock().served_at
    }

    /// How sure this process may be of its site's lease.
    pub fn tenure(&self, now: Instant) -> Tenure {
        let heard = *self.lock();
        match heard
            .asked
            .map(|asked| now.saturating_duration_since(asked))
        {
            _ if heard.unneeded => Tenure::Sure,
            Some(silence) if silence < SURE => Tenure::Sure,
            Some(silence) if silence < OVER => Tenure::Unsure,
            Some(_) | None => Tenure::Over,
        }
    }

    /// As if nothing was heard for so long.
    #[cfg(test)]
    pub(crate) fn be_silent_for(&self, silence: Duration) {
        self.lock().asked = Instant::now().checked_sub(silence);
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        // Both fields are written in one go, and nothing in between panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lapses_by_silence_alone() {
        let contact = Contact::default();
        let start = Instant::now();
        assert_eq!(
            contact.tenure(start),
            Tenure::Over,
            "who was never heard gave nothing"
        );
        contact.heard(start, Some(1_000));
        let after = |seconds| contact.tenure(start + Duration::from_secs(seconds));
        assert_eq!(
            [29, 30, 59, 60].map(after),
            [Tenure::Sure, Tenure::Unsure, Tenure::Unsure, Tenure::Over]
        );
        // An answer to a call that began earlier arrives later.
        contact.heard(start - Duration::from_secs(20), Some(900));
        assert_eq!(
            (after(29), contact.served_at()),
            (Tenure::Sure, Some(1_000))
        );
        contact.heard(start + Duration::from_secs(60), None);
        assert_eq!(after(80), Tenure::Sure);
    }
}
