//! TLS to a BMC. The client trusts a single certificate by SHA-256 and checks neither host name nor
//! authority, because BMCs sign their own certificates for arbitrary names.

use std::sync::{Arc, Mutex, PoisonError};

use muster_core::values::Digest;
use rustls::{ALL_VERSIONS, ClientConfig, Error};

use crate::pinned::{self, Judge, Shown};

/// The trusted certificate of a client: pinned beforehand, or the first certificate shown.
#[derive(Debug, Default)]
pub(super) struct Pin {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    pinned: Option<Digest>,
    /// The latest certificate different from the pinned certificate.
    stranger: Option<Digest>,
}

impl Pin {
    pub(super) fn new(pinned: Option<Digest>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                pinned,
                stranger: None,
            }),
        })
    }

    /// Returns the trusted certificate, or `None` before the first call without a pin.
    pub(super) fn pinned(&self) -> Option<Digest> {
        self.lock().pinned
    }

    /// Returns the pinned and the shown certificate, if the two differed since the last call.
    pub(super) fn take_mismatch(&self) -> Option<(Digest, Digest)> {
        let mut state = self.lock();
        state.pinned.zip(state.stranger.take())
    }

    /// Returns whether the certificate is trusted. Without a pin the first certificate becomes the
    /// pin.
    fn admit(&self, seen: Digest) -> bool {
        let mut state = self.lock();
        let fits = *state.pinned.get_or_insert(seen) == seen;
        state.stranger = (!fits).then_some(seen);
        fits
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a TLS configuration trusting only certificates admitted by `pin`.
pub(super) fn client_config(pin: Arc<Pin>) -> ClientConfig {
    let builder = pinned::client(pin, ALL_VERSIONS).expect("the provider supports TLS 1.2 and 1.3");
    builder.with_no_client_auth()
}

impl Judge for Pin {
    fn judge(&self, shown: &Shown<'_>) -> Result<(), Error> {
        match self.admit(Digest::of(shown.own)) {
            true => Ok(()),
            false => Err(Error::General("not the pinned certificate".into())),
        }
    }
}
