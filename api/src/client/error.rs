//! What a call can end with, told apart so that a program can decide: refused, unreachable, or not understood.

use crate::problem::Problem;

/// Why a call did not give what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The caller's own mistake, found before anything was sent.
    #[error("{0}")]
    Usage(String),
    /// The server refused, and said why.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// No answer: the server is away, or the connection broke. What was asked for may have happened.
    #[error("the server cannot be reached: {}", causes(.0))]
    Unreachable(reqwest::Error),
    /// An answer that is not from a Muster server, or from a proxy before it.
    #[error("unexpected answer {status}: {body}")]
    Unexpected { status: u16, body: String },
    #[error("the answer could not be read: {0}")]
    Unreadable(#[source] serde_json::Error),
    /// What was waited for did not happen in time.
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
    /// The status the server answered, if it did.
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

    /// Whether the stable code of the server's refusal is this one.
    pub fn is(&self, code: &str) -> bool {
        matches!(self, Self::Problem(problem) if problem.code == code)
    }

    /// Whether the server was away for the moment: trying a read again may help.
    pub fn away(&self) -> bool {
        matches!(self, Self::Unreachable(_)) || matches!(self.status(), Some(502..=504))
    }
}

/// reqwest's own message hides the cause (refused, timed out, name unknown) behind its sources.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
