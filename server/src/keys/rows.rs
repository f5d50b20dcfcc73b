//! Seals over the rows that decide rights. A row inserted or changed by a writer of the database
//! has no valid seal: the key is derived from the master key, which is stored outside of the
//! database.

use aws_lc_rs::hmac;

/// The key of the seals.
pub struct RowKey(hmac::Key);

impl RowKey {
    /// Derives the key from the master key, under a label used for no other key.
    pub(super) fn derive(master: &[u8; 32]) -> Self {
        let derived = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, master),
            b"muster row seal v1",
        );
        Self(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }

    /// Returns the seal over the text of a row.
    pub fn seal(&self, text: &str) -> Vec<u8> {
        hmac::sign(&self.0, text.as_bytes()).as_ref().to_vec()
    }

    /// Returns whether a stored seal belongs to the text of a row. Compares in constant time.
    pub fn fits(&self, text: &str, stored: Option<&[u8]>) -> bool {
        stored.is_some_and(|seal| hmac::verify(&self.0, text.as_bytes(), seal).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_fits_its_text_and_its_installation_alone() {
        let (own, other) = (RowKey::derive(&[1; 32]), RowKey::derive(&[2; 32]));
        let seal = own.seal("a row");
        assert!(own.fits("a row", Some(&seal)));
        assert!(!own.fits("another row", Some(&seal)) && !other.fits("a row", Some(&seal)));
        for broken in [None, Some(&[][..]), Some(&seal[..31])] {
            assert!(!own.fits("a row", broken), "{broken:?}");
        }
    }
}
