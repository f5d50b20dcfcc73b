//! Failures as sent to the agent: a stable code, a message, and whether a retry can help.

use muster_core::wire::node::{Failure, FailureCode};

/// Builds a failure that repeats when the same attempt runs again.
pub fn fatal(code: FailureCode, message: impl Into<String>) -> Failure {
    Failure::fatal(code, message)
}

/// Builds a failure that may pass without a change, such as a broken connection or a busy device.
pub fn retryable(code: FailureCode, message: impl Into<String>) -> Failure {
    Failure::retryable(code, message)
}

/// Maps an operating-system error to a retryable `io` failure. The text of `what` names the failed
/// action or the path.
pub fn io(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| retryable(FailureCode::Io, format!("{what}: {error}"))
}
