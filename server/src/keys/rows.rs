//! Seals over the rows that decide rights. A row inserted or changed by a writer of the database
//! has no valid seal: the key is derived from the master key, which is stored outside of the
//! database.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::hmac;

/// The keys of the seals: of each held master key.
pub struct RowKey {
    keys: Vec<hmac::Key>,
    /// Position of the key that seals.
    sealing: Arc<AtomicUsize>,
}

/// Derives a key from a master key, under a label used for no other key.
pub(super) fn derive(master: &[u8; 32]) -> hmac::Key {
    let derived = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, master),
        b"muster row seal v1",
    );
    hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
}

impl RowKey {
    pub(super) fn new(keys: Vec<hmac::Key>, sealing: Arc<AtomicUsize>) -> Self {
        Self { keys, sealing }
    }

    fn sealing(&self) -> &hmac::Key {
        &self.keys[self.sealing.load(Ordering::Relaxed)]
    }

    /// Returns the seal over the text of a row.
    pub fn seal(&self, text: &str) -> Vec<u8> {
        hmac::sign(self.sealing(), text.as_bytes())
            .as_ref()
            .to_vec()
    }

    /// Returns whether a stored seal belongs to the text of a row, by any held key. Compares in
    /// constant time.
    pub fn fits(&self, text: &str, stored: Option<&[u8]>) -> bool {
        let fits = |seal: &[u8]| {
            let mut keys = self.keys.iter();
            keys.any(|key| hmac::verify(key, text.as_bytes(), seal).is_ok())
        };
        stored.is_some_and(fits)
    }

    /// Returns whether a stored seal is of the key that seals.
    pub fn is_newest(&self, text: &str, stored: Option<&[u8]>) -> bool {
        stored.is_some_and(|seal| hmac::verify(self.sealing(), text.as_bytes(), seal).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(bytes: u8) -> RowKey {
        RowKey::new(vec![derive(&[bytes; 32])], Arc::default())
    }

    #[test]
    fn a_seal_fits_its_text_and_its_installation_alone() {
        let (own, other) = (held(1), held(2));
        let seal = own.seal("a row");
        assert!(own.fits("a row", Some(&seal)));
        assert!(!own.fits("another row", Some(&seal)) && !other.fits("a row", Some(&seal)));
        for broken in [None, Some(&[][..]), Some(&seal[..31])] {
            assert!(!own.fits("a row", broken), "{broken:?}");
        }
    }
}
