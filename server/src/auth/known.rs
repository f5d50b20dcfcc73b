//! The note that a request's credential is accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Noted where the credential of a request is accepted.
#[derive(Clone, Debug, Default)]
pub struct Known(Arc<AtomicBool>);

impl Known {
    /// The request's credential is accepted.
    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the request's credential is accepted.
    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
