//! The authorities of agents' certificates, as held by a running server. The listener needs the
//! authorities at each handshake, so a task compares them with the database each second.

use std::sync::{Arc, PoisonError, RwLock};

use jiff::SignedDuration;

use super::authority::{Authority, LASTS};
use super::rings::Ring;

/// The present authority, and the successor during a rotation.
pub struct Authorities {
    held: RwLock<Arc<Ring<Authority>>>,
    lasts: SignedDuration,
}

impl Authorities {
    /// Holds the authorities of the database.
    pub fn new(ring: Ring<Authority>) -> Self {
        Self {
            held: RwLock::new(Arc::new(ring)),
            lasts: LASTS,
        }
    }

    /// Returns the same authorities with another lifetime for agents' certificates.
    pub fn lasting(self, lasts: SignedDuration) -> Self {
        Self { lasts, ..self }
    }

    /// Returns the lifetime of agents' certificates.
    pub fn lasts(&self) -> SignedDuration {
        self.lasts
    }

    /// Returns the held authorities.
    pub fn now(&self) -> Arc<Ring<Authority>> {
        Arc::clone(&self.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the authorities of the database. Returns whether the held authorities changed.
    pub fn take(&self, ring: Ring<Authority>) -> bool {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let differs = held.digests() != ring.digests();
        if differs {
            *held = Arc::new(ring);
        }
        differs
    }
}
