//! Errors of calls to the server. Some allow a retry, some end the agent or the job.

use reqwest::{Response, StatusCode};
use serde::Deserialize;

/// Maximum number of bytes read from an error body.
const PROBLEM_BYTES: usize = 64 << 10;

/// The reason why a call has no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No answer, or an answer that says "later": a retry may succeed.
    #[error("the server is away: {0}")]
    Away(String),
    /// Another agent process acts for the site: this process must stop.
    #[error("another agent process has taken over this site")]
    StaleEpoch,
    /// The job went to a later attempt: this attempt must stop.
    #[error("a later attempt has taken over this job")]
    StaleAttempt,
    #[error("the server refuses: {status} {code}: {detail}")]
    Refused {
        status: u16,
        code: String,
        detail: String,
    },
    /// The answer violates protocol 1.
    #[error("the server's answer cannot be understood: {0}")]
    Garbled(String),
}

impl CallError {
    /// Returns whether a retry may succeed.
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Away(_))
    }

    /// Adds the id of the call to the message. A stale epoch or attempt is a normal event and keeps
    /// its message.
    pub(super) fn with_request_id(self, id: &str) -> Self {
        let named = |what: String| format!("{what} (request {id})");
        match self {
            Self::Away(why) => Self::Away(named(why)),
            Self::Refused {
                status,
                code,
                detail,
            } => Self::Refused {
                status,
                code,
                detail: named(detail),
            },
            Self::Garbled(what) => Self::Garbled(named(what)),
            Self::StaleEpoch | Self::StaleAttempt => self,
        }
    }

    /// Returns whether the caller has lost the right to act.
    pub fn stale(&self) -> bool {
        matches!(self, Self::StaleEpoch | Self::StaleAttempt)
    }
}

/// The members of an RFC 9457 problem read by the agent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    code: String,
    title: String,
    detail: String,
}

/// Returns a successful answer, and turns a problem into its error.
pub(super) async fn accept(answer: Response) -> Result<Response, CallError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let body = read_body(answer, PROBLEM_BYTES).await.unwrap_or_default();
    let problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
    let Problem {
        code,
        title,
        detail,
    } = problem;
    let detail = if detail.is_empty() { title } else { detail };
    match (status, code.as_str()) {
        (StatusCode::CONFLICT, "stale_epoch") => Err(CallError::StaleEpoch),
        (StatusCode::CONFLICT, "stale_attempt") => Err(CallError::StaleAttempt),
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT, _) => {
            Err(away(&format!("{status} {code} {detail}")))
        }
        (status, _) if status.is_server_error() => Err(away(&format!("{status} {code} {detail}"))),
        (status, _) => Err(CallError::Refused {
            status: status.as_u16(),
            code,
            detail,
        }),
    }
}

/// Reads the body of an answer up to a limit in bytes.
pub(super) async fn read_body(mut answer: Response, limit: usize) -> Result<Vec<u8>, CallError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(lost)? {
        if bytes.len() + chunk.len() > limit {
            return Err(CallError::Garbled(format!("more than {limit} bytes")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

pub(super) fn invalid(detail: String) -> CallError {
    CallError::Refused {
        status: 0,
        code: "server_url".into(),
        detail,
    }
}

fn away(why: &str) -> CallError {
    CallError::Away(why.to_owned())
}

/// Returns the error of a request without an answer. The message lists all causes, because the
/// message of reqwest itself leaves out "connection refused" or "timed out".
pub(super) fn lost(error: reqwest::Error) -> CallError {
    let error = error.without_url();
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| {
        error.source()
    });
    CallError::Away(
        causes
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(": "),
    )
}
