//! Seals over the events that agents are told to remember. A seal proves that this installation
//! sent the event, also after a restore of the database: the key is derived from the first master
//! key, which is stored outside of the database. A rotation of the master key keeps the mark key,
//! sealed in the database, because agents may be off for weeks.

use aws_lc_rs::hmac;
use muster_core::ids::EventId;

/// The key of the seals.
pub struct MarkKey(hmac::Key);

/// Derives the bytes of the key from a master key, under a label used for no other key.
pub(super) fn derive(master: &[u8; 32]) -> [u8; 32] {
    let derived = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, master),
        b"muster mark seal v1",
    );
    derived.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl MarkKey {
    pub(super) fn new(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Returns the seal over an event: 64 hex digits.
    pub fn seal(&self, event: EventId) -> String {
        hex::encode(hmac::sign(&self.0, event.0.as_bytes()))
    }

    /// Returns whether a seal belongs to an event. Compares in constant time.
    pub fn fits(&self, event: EventId, seal: &str) -> bool {
        let tag = hex::decode(seal);
        tag.is_ok_and(|tag| hmac::verify(&self.0, event.0.as_bytes(), &tag).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_fits_its_event_and_its_installation_alone() {
        let (own, other) = (
            MarkKey::new(&derive(&[1; 32])),
            MarkKey::new(&derive(&[2; 32])),
        );
        let event = EventId::new();
        let seal = own.seal(event);
        assert!(own.fits(event, &seal) && seal.len() == 64);
        assert!(!own.fits(EventId::new(), &seal) && !other.fits(event, &seal));
        for broken in ["", "00", "no hex", &seal[..62], &other.seal(event)] {
            assert!(!own.fits(event, broken), "{broken}");
        }
    }
}
