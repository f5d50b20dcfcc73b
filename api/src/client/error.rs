//! Errors of a call, separated for decisions in programs: rejected, unreachable, or unreadable.

use crate::problem::Problem;

/// The reason for a failed call.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A mistake of the caller, found before sending a request.
    #[error("{0}")]
    Usage(String),
    /// The server rejected the request and gave a reason.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// No response: the server is down, or the connection broke. The request may have been
    /// executed.
    #[error("the server cannot be reached: {}", describe_causes(.0))]
    Unreachable(reqwest::Error),
    /// A response from a server other than Muster, or from a proxy.
    #[error("unexpected answer {status}: {body}")]
    Unexpected { status: u16, body: String },
    #[error("the answer could not be read: {0}")]
    Unreadable(#[source] serde_json::Error),
    /// The awaited condition did not become true in time.
    #[error("{0}")]
    TimedOut(String),
    /// A local file could not be read.
    #[error("{path}: {source}")]
    File {
        path: String,
        source: std::io::Error,
    },
}

impl From<reqwest::Error> for ClientError {
    fn from(error: reqwest::Error) -> Self {
        Self::Unreachable(error.without_url())
    }
}

impl ClientError {
    /// Returns the HTTP status of the response, if there was a response.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem(problem) => Some(problem.status),
            Self::Unexpected { status, .. } => Some(*status),
            Self::Usage(_)
            | Self::Unreachable(_)
            | Self::Unreadable(_)
            | Self::TimedOut(_)
            | Self::File { .. } => None,
        }
    }

    /// Returns whether the server rejected the request with this stable code.
    pub fn is(&self, code: &str) -> bool {
        matches!(self, Self::Problem(problem) if problem.code == code)
    }

    /// Returns whether the server is temporarily unavailable (no connection, or 502 to 504). A
    /// retry of a read may help.
    pub fn away(&self) -> bool {
        matches!(self, Self::Unreachable(_)) || matches!(self.status(), Some(502..=504))
    }
}

/// Returns the error with its chain of sources. reqwest's own message hides the cause (refused,
/// timed out, unknown name) in the sources.
fn describe_causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
