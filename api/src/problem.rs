//! RFC 9457 answers: what went wrong, in words for a person and a stable code for a program.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// Stable; programs decide on it.
    pub code: String,
    pub detail: String,
    /// Finds the request in the server's log.
    #[serde(default)]
    pub request_id: Option<String>,
    /// Whether the same request may succeed later without being changed.
    pub retryable: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Fault>,
    /// What has the serial, the address or the name that was wanted, where it may be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<Existing>,
}

/// An object that is there already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Existing {
    /// As in plans: `node`, `claim`, `rack`; also `agent` and `token`.
    pub kind: String,
    pub id: Uuid,
    pub name: String,
    /// Its path.
    #[serde(rename = "self")]
    pub link: String,
}

/// One thing wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// RFC 6901 pointer into the body, or a parameter's name.
    pub pointer: String,
    pub code: String,
    pub detail: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} {})", self.detail, self.status, self.code)?;
        for fault in &self.errors {
            write!(
                f,
                "\n  {}: {}",
                if fault.pointer.is_empty() {
                    "/"
                } else {
                    &fault.pointer
                },
                fault.detail
            )?;
        }
        Ok(())
    }
}
