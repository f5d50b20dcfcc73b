//! RFC 9457 error responses: a description for people and a stable code for programs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// An error response (`application/problem+json`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    /// HTTP status code of the response.
    pub status: u16,
    /// Stable error code, for decisions in programs.
    pub code: String,
    /// Explanation of this occurrence, for people.
    pub detail: String,
    /// Identifies the request in the server's log.
    #[serde(default)]
    pub request_id: Option<String>,
    /// Whether an unchanged retry of the request may succeed later.
    pub retryable: bool,
    /// Every error found in the request. Empty for problems outside the request's content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Fault>,
    /// The object already using the requested serial, address or name. Set only if the caller may
    /// read that object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<Existing>,
}

/// An existing object in conflict with the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Existing {
    /// Kind as in plans: `node`, `claim`, `rack`; also `agent` and `token`.
    pub kind: String,
    pub id: Uuid,
    pub name: String,
    /// The path of the object.
    #[serde(rename = "self")]
    pub link: String,
}

/// One error in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// RFC 6901 pointer into the body, or the name of a parameter.
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
