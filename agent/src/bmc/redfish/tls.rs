//! TLS to a BMC: one certificate is trusted, by its SHA-256, and no name or authority. BMCs sign their own, for any name or none.

use std::sync::{Arc, Mutex, PoisonError};

use muster_core::values::Digest;
use rustls::{ALL_VERSIONS, ClientConfig, Error};

use crate::pinned::{self, Judge, Shown};

/// The certificate a client goes by: pinned beforehand, or the first one it was shown.
#[derive(Debug, Default)]
pub(super) struct Pin {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    pinned: Option<Digest>,
    /// The last certificate that was not the pinned one.
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

    /// The certificate that is trusted, once there is one.
    pub(super) fn pinned(&self) -> Option<Digest> {
        self.lock().pinned
    }

    /// The pinned and the shown certificate, when they differed since the last call.
    pub(super) fn take_mismatch(&self) -> Option<(Digest, Digest)> {
        let mut state = self.lock();
        state.pinned.zip(state.stranger.take())
    }

    /// Whether to go on with this certificate; without a pin the first one becomes it.
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

/// A TLS configuration that trusts what `pin` admits and nothing else.
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
