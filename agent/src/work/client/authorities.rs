//! The authorities of the server's certificate: the list told by the server, and the list that the
//! agent has stored.

use std::sync::{PoisonError, RwLock};

use muster_core::values::Digest;
use muster_core::wire::enrol::{read_authorities, write_authorities};
use tokio::sync::watch;

/// Both lists. The client trusts by neither of them.
#[derive(Debug)]
pub struct Authorities {
    /// The latest list in an answer of the server. Empty before the first.
    told: watch::Sender<Vec<Digest>>,
    /// The stored list, as shown to the server. Empty: none is shown.
    stored: RwLock<String>,
}

impl Default for Authorities {
    fn default() -> Self {
        Self {
            told: watch::Sender::new(Vec::new()),
            stored: RwLock::default(),
        }
    }
}

impl Authorities {
    /// Takes the list in an answer of the server. A malformed list is ignored.
    pub(super) fn hear(&self, text: &str) {
        let Some(list) = read_authorities(text) else {
            tracing::warn!("list of authorities of the server is malformed and was ignored");
            return;
        };
        self.told.send_if_modified(|told| {
            let differs = *told != list;
            *told = list;
            differs
        });
    }

    /// Returns the latest list in an answer of the server. Empty: no answer had a list.
    pub fn told(&self) -> Vec<Digest> {
        self.told.borrow().clone()
    }

    /// Returns a receiver that sees each change of the told list.
    pub fn subscribe(&self) -> watch::Receiver<Vec<Digest>> {
        self.told.subscribe()
    }

    /// Shows the stored list with each call from now on.
    pub fn show(&self, stored: &[Digest]) {
        *self.stored.write().unwrap_or_else(PoisonError::into_inner) = write_authorities(stored);
    }

    /// Returns the list to show, if any.
    pub(super) fn shown(&self) -> Option<String> {
        let stored = self.stored.read().unwrap_or_else(PoisonError::into_inner);
        (!stored.is_empty()).then(|| stored.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_list_is_seen_and_a_malformed_list_is_ignored() {
        let [a, b] = ["a", "b"].map(|name| Digest::of(name.as_bytes()));
        let authorities = Authorities::default();
        let told = authorities.subscribe();
        assert_eq!(authorities.shown(), None);
        authorities.hear("sha256:00");
        assert!(!told.has_changed().unwrap() && authorities.told().is_empty());
        authorities.hear(&write_authorities(&[a, b]));
        assert!(told.has_changed().unwrap());
        authorities.hear("");
        assert_eq!(authorities.told(), [a, b]);
        authorities.show(&[a]);
        assert_eq!(authorities.shown(), Some(a.to_string()));
    }
}
