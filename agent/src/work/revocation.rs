//! The list of revoked keys in an order: tried once in an attempt.

use std::sync::atomic::{AtomicBool, Ordering};

/// The progress of the list of an order.
#[derive(Debug, Default)]
pub struct Revocation {
    is_tried: AtomicBool,
    is_held: AtomicBool,
}

impl Revocation {
    /// Returns whether the list was not tried before, and notes the try.
    pub fn begin(&self) -> bool {
        !self.is_tried.swap(true, Ordering::Relaxed)
    }

    /// Notes that the installed system of the node refuses the keys in the list.
    pub fn note_held(&self) {
        self.is_held.store(true, Ordering::Relaxed);
    }

    /// Returns whether the installed system of the node refuses the keys in the list.
    pub fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }
}
