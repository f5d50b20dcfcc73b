//! Failures, as they travel to the agent: a stable word, a sentence, and whether the same again can help.

use muster_core::wire::node::Failure;

/// A failure that the same attempt again cannot mend.
pub fn fatal(code: &str, message: impl Into<String>) -> Failure {
    Failure {
        code: code.into(),
        message: message.into(),
        retryable: false,
    }
}

/// A failure that may pass by itself: a broken connection, a busy device.
pub fn retryable(code: &str, message: impl Into<String>) -> Failure {
    Failure {
        code: code.into(),
        message: message.into(),
        retryable: true,
    }
}

/// An operating-system error while doing `what`.
pub fn io(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| retryable("io", format!("{what}: {error}"))
}
