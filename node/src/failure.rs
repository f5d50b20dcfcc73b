//! Failures, as they travel to the agent: a stable word, a sentence, and whether the same again can help.

use muster_core::wire::node::{Failure, FailureCode};

/// A failure that the same attempt again cannot mend.
pub fn fatal(code: FailureCode, message: impl Into<String>) -> Failure {
    Failure::fatal(code, message)
}

/// A failure that may pass by itself: a broken connection, a busy device.
pub fn retryable(code: FailureCode, message: impl Into<String>) -> Failure {
    Failure::retryable(code, message)
}

/// An operating-system error while doing `what`.
pub fn io(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| retryable(FailureCode::Io, format!("{what}: {error}"))
}
