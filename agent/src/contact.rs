//! Time since the last contact with the server, by the monotonic clock of the process. A
//! disconnected agent uses the time to decide, without asking, whether another agent may already
//! act for the site.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use muster_core::wire::calls::SITE_LEASE_S;

/// After this time without contact the agent is unsure: two thirds of the site lease.
const SURE: Duration = Duration::from_secs(SITE_LEASE_S * 2 / 3);
/// After this time without contact another agent may have taken over: two thirds of the sum of the
/// lease and the pause before a takeover.
const OVER: Duration = Duration::from_secs(SITE_LEASE_S * 4 / 3);

/// Contact state with the server, shared by all clones.
#[derive(Clone, Debug, Default)]
pub struct Contact(Arc<Mutex<Heard>>);

#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// Start time of the latest answered call. The server answered later than this time.
    asked: Option<Instant>,
    /// Server time of the answer, in milliseconds since the epoch.
    served_at: Option<i64>,
    unneeded: bool,
}

/// The certainty of an agent about the site lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenure {
    /// No other agent acts for the site.
    Sure,
    /// No other agent may act yet, but the renewal of the lease is unknown. This agent answers DHCP
    /// only after other servers had time to answer.
    Unsure,
    /// Another agent may act for the site, so this agent installs no node.
    Over,
}

impl Contact {
    /// Returns a contact for boot services running without a server. No other agent acts for such a
    /// site.
    pub fn unneeded() -> Self {
        Self(Arc::new(Mutex::new(Heard {
            unneeded: true,
            ..Heard::default()
        })))
    }

    /// Records the answer to a call started at `asked`.
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

    /// Returns the server time of the latest answer, sent with the next call.
    pub fn served_at(&self) -> Option<i64> {
        self.lock().served_at
    }

    /// Returns the certainty about the site lease at time `now`.
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

    /// Simulates a silence of the given length.
    #[cfg(test)]
    pub(crate) fn be_silent_for(&self, silence: Duration) {
        self.lock().asked = Instant::now().checked_sub(silence);
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        // All fields are assigned in a single statement, so a panic cannot leave a partial update.
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
        // A late answer to an earlier call.
        contact.heard(start - Duration::from_secs(20), Some(900));
        assert_eq!(
            (after(29), contact.served_at()),
            (Tenure::Sure, Some(1_000))
        );
        contact.heard(start + Duration::from_secs(60), None);
        assert_eq!(after(80), Tenure::Sure);
    }
}
