//! The error type of the server, independent of HTTP. Text for the caller is kept apart from
//! details for maintainers. Rendered as RFC 9457 problem+json in one place.

use http::StatusCode;
use muster_api::problem::Existing;
use muster_core::ids::OperationId;
use serde::Serialize;
use sqlx::error::DatabaseError;
use sqlx::postgres::PgDatabaseError;

/// Every error of a handler, task or database function. The text of `public` is sent to the caller,
/// and the source is only logged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request breaks the schema (400).
    #[error("invalid request")]
    Invalid(Vec<Fault>),
    /// The request is well-formed but invalid in the present state of the fleet (422).
    #[error("unprocessable request")]
    Unprocessable(Vec<Fault>),
    #[error("not signed in")]
    Unauthenticated,
    /// The credential of an agent or a person is rejected (401): a stable code, and a sentence with
    /// advice.
    #[error("{code}: {detail}")]
    NotAdmitted { code: &'static str, detail: String },
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// The kind and name of the missing object.
    #[error("{0} not found")]
    NotFound(String),
    /// The present state does not allow the request (409): a stable code and a sentence.
    #[error("{code}: {detail}")]
    Conflict { code: &'static str, detail: String },
    /// Another object holds the requested serial, address or name (409).
    #[error("{}: {}", .0.code, .0.detail)]
    Taken(Box<Taken>),
    /// The change takes something away that nodes depend on (409).
    #[error("breaks nodes: {}", .0.detail)]
    BreaksNodes(Box<BrokenNodes>),
    /// Another operation is under way (409). A retry after the operation may succeed.
    #[error("busy: {detail}")]
    Busy {
        detail: String,
        operation: OperationId,
    },
    /// The request needs a second person (409): the id of the approval to be decided.
    #[error("a second person must agree: {because}")]
    SecondPerson { id: uuid::Uuid, because: String },
    /// `If-None-Match: *` met an existing object (412): the generation of the object.
    #[error("exists, generation {0}")]
    Exists(i64),
    /// `If-Match` named another generation (412): the current generation, or 0 for a missing
    /// object.
    #[error("stale generation, now {0}")]
    Stale(i64),
    /// A destructive call without `If-Match` (428).
    #[error("If-Match required")]
    PreconditionRequired,
    /// The cursor belongs to another history (410). The client must read again from the beginning.
    #[error("cursor expired")]
    CursorExpired,
    /// The caller has as many open streams as one person or token may have (429).
    #[error("too many streams of one caller")]
    TooManyStreams { most: usize },
    /// The replica has as many open streams as it serves (503).
    #[error("too many streams of the replica")]
    StreamsFull,
    /// The caller sent too many requests (429): seconds until the next request is accepted.
    #[error("too many requests")]
    TooMany { wait_s: f64 },
    /// Failed logins delay the account (429): seconds until the next login is checked.
    #[error("the account is delayed")]
    Delayed { wait_s: f64 },
    /// The body is larger than the route's limit (413).
    #[error("body too large")]
    TooLarge,
    /// The content type of the body is not JSON (415).
    #[error("unsupported media type")]
    UnsupportedMediaType,
    /// The path exists but does not support the method (405).
    #[error("method not allowed")]
    MethodNotAllowed,
    /// Two transactions blocked each other and the database ended this one (503). A retry of the
    /// same request will work.
    #[error("contended")]
    Contended(#[source] sqlx::Error),
    /// The database is older than other systems remember (503). Power and disk writes stay blocked
    /// until an administrator confirms.
    #[error("caution: {0}")]
    Caution(String),
    /// The database is unavailable (503).
    #[error("dependency unavailable")]
    Unavailable(#[source] sqlx::Error),
    /// A bug (500).
    #[error("internal error")]
    Internal(#[source] anyhow::Error),
}

/// A natural key already held by another object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub code: &'static str,
    pub detail: String,
    /// Name of the constraint, and the values of the key as reported by Postgres.
    pub constraint: String,
    pub key: String,
    /// The object holding the key, after a lookup. Filled only for callers with read access
    /// ([`crate::intents::taken`]).
    pub existing: Option<Existing>,
}

/// The nodes that a refused change would break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenNodes {
    pub detail: String,
    /// Names of the first nodes within the caller's read scope.
    pub nodes: Vec<String>,
    /// Number of all broken nodes.
    pub count: i64,
}

/// A problem in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// RFC 6901 pointer into the body, or the name of a parameter.
    pub pointer: String,
    pub code: &'static str,
    pub detail: String,
}

impl Error {
    /// Returns an error with one fault against the schema.
    pub fn invalid(
        pointer: impl Into<String>,
        code: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self::Invalid(vec![Fault {
            pointer: pointer.into(),
            code,
            detail: detail.into(),
        }])
    }

    /// Returns an error with one fault of a well-formed request.
    pub fn unprocessable(
        pointer: impl Into<String>,
        code: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self::Unprocessable(vec![Fault {
            pointer: pointer.into(),
            code,
            detail: detail.into(),
        }])
    }

    /// Returns a conflict with the present state.
    pub fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Self::Conflict {
            code,
            detail: detail.into(),
        }
    }

    /// Returns the error for a key already held by another object.
    pub fn taken(
        constraint: &str,
        key: impl Into<String>,
        code: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        let (constraint, key) = (constraint.to_owned(), key.into());
        Self::Taken(Box::new(Taken {
            code,
            detail: detail.into(),
            constraint,
            key,
            existing: None,
        }))
    }

    /// Returns the error for a bug, with the source for a maintainer.
    pub fn internal(source: impl Into<anyhow::Error>) -> Self {
        Self::Internal(source.into())
    }

    /// Returns whether the unchanged request may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unavailable(_)
            | Self::Contended(_)
            | Self::Caution(_)
            | Self::TooMany { .. }
            | Self::Delayed { .. }
            | Self::TooManyStreams { .. }
            | Self::StreamsFull
            | Self::Conflict { .. }
            | Self::BreaksNodes(_)
            | Self::Taken(_)
            | Self::Busy { .. } => true,
            Self::Invalid(_)
            | Self::Unprocessable(_)
            | Self::Unauthenticated
            | Self::NotAdmitted { .. }
            | Self::Forbidden(_)
            | Self::NotFound(_)
            | Self::SecondPerson { .. }
            | Self::Exists(_)
            | Self::Stale(_)
            | Self::PreconditionRequired
            | Self::CursorExpired
            | Self::TooLarge
            | Self::UnsupportedMediaType
            | Self::MethodNotAllowed
            | Self::Internal(_) => false,
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unauthenticated | Self::NotAdmitted { .. } => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Conflict { .. }
            | Self::BreaksNodes(_)
            | Self::Taken(_)
            | Self::Busy { .. }
            | Self::SecondPerson { .. } => StatusCode::CONFLICT,
            Self::Exists(_) | Self::Stale(_) => StatusCode::PRECONDITION_FAILED,
            Self::CursorExpired => StatusCode::GONE,
            Self::TooMany { .. } | Self::Delayed { .. } | Self::TooManyStreams { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::PreconditionRequired => StatusCode::PRECONDITION_REQUIRED,
            Self::Unavailable(_) | Self::Contended(_) | Self::Caution(_) | Self::StreamsFull => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the stable code, the sentence and the list of faults for the caller.
    pub fn public(&self) -> (&'static str, String, &[Fault]) {
        match self {
            Self::Invalid(faults) => ("invalid_request", "The request is not well formed.".into(), faults),
            Self::Unprocessable(faults) => {
                ("unprocessable", "The request is well-formed but invalid; `errors` lists each problem.".into(), faults)
            }
            Self::Unauthenticated => {
                ("unauthenticated", "Sign in, or send a token as `Authorization: Bearer`.".into(), &[])
            }
            Self::Forbidden(what) => ("forbidden", what.clone(), &[]),
            Self::NotFound(what) => ("not_found", format!("{what} does not exist."), &[]),
            Self::Conflict { code, detail } | Self::NotAdmitted { code, detail } => (code, detail.clone(), &[]),
            Self::BreaksNodes(broken) => ("breaks_nodes", broken.detail.clone(), &[]),
            Self::Taken(taken) => match &taken.existing {
                Some(Existing { kind, id, name, .. }) => {
                    let kind = kind.replace('_', " ");
                    (taken.code, format!("{} It is {kind} {name} ({id}).", taken.detail), &[])
                }
                None => (taken.code, taken.detail.clone(), &[]),
            },
            Self::Busy { detail, .. } => ("busy", detail.clone(), &[]),
            Self::SecondPerson { id, because } => {
                let detail =
                    format!("{because} It was asked for; somebody else agrees with `muster approval approve {id}`.");
                ("second_person", detail, &[])
            }
            Self::Exists(_) => ("exists", "The name is taken, and the request would only create.".into(), &[]),
            Self::Stale(0) => ("stale_generation", "There is no such object to match.".into(), &[]),
            Self::Stale(now) => {
                ("stale_generation", format!("It was changed in the meantime; the current ETag is \"{now}\"."), &[])
            }
            Self::TooMany { .. } => {
                ("too_many_requests", "More was asked than one caller may; go on after Retry-After.".into(), &[])
            }
            Self::Delayed { wait_s } => ("login_delayed", describe_delay(*wait_s), &[]),
            Self::TooManyStreams { most } => ("too_many_streams", describe_streams(*most), &[]),
            Self::StreamsFull => ("streams_full", STREAMS_FULL.into(), &[]),
            Self::CursorExpired => (
                "cursor_expired",
                "The history ends before this number: an older database was restored. Begin again with `after=0`."
                    .into(),
                &[],
            ),
            Self::TooLarge => ("too_large", "The body is larger than this route takes.".into(), &[]),
            Self::UnsupportedMediaType => ("unsupported_media_type", "Send application/json.".into(), &[]),
            Self::MethodNotAllowed => ("method_not_allowed", "The path has other methods: see Allow.".into(), &[]),
            Self::PreconditionRequired => {
                ("precondition_required", "Send If-Match with the ETag you read.".into(), &[])
            }
            Self::Caution(because) => (
                "caution",
                format!(
                    "{because} Nothing is powered or written until an administrator runs `muster caution confirm`."
                ),
                &[],
            ),
            Self::Unavailable(error) if is_full(error) => (
                "database_full",
                "The database's disk is full: nothing is written until there is room again; what is there can be read."
                    .into(),
                &[],
            ),
            Self::Unavailable(_) => ("unavailable", "The database cannot be reached; try again shortly.".into(), &[]),
            Self::Contended(_) => ("contended", "Another change was in the way of this one; try again.".into(), &[]),
            Self::Internal(_) => {
                ("internal", "This is a bug in Muster; the request id finds it in the log.".into(), &[])
            }
        }
    }
}

const STREAMS_FULL: &str =
    "The server has as many event streams as it serves; try again after Retry-After.";

/// Returns a wait in whole seconds, as in `Retry-After`.
pub(crate) fn whole_seconds(wait_s: f64) -> String {
    format!("{:.0}", wait_s.ceil().max(1.0))
}

fn describe_delay(wait_s: f64) -> String {
    format!(
        "Failed logins delay this account. Wait {} s, or ask an administrator for `muster user unlock NAME`. On the server's host, `muster admin arm` ends the delay too.",
        whole_seconds(wait_s)
    )
}

fn describe_streams(most: usize) -> String {
    format!(
        "One person or token has at most {most} open event streams of a server; close an open stream first."
    )
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::Tls(_) => Self::Unavailable(error),
            // Deadlock or serialization failure: Postgres ended one of the waiting transactions.
            sqlx::Error::Database(database)
                if database
                    .code()
                    .is_some_and(|code| ["40P01", "40001"].contains(&&*code)) =>
            {
                Self::Contended(error)
            }
            sqlx::Error::Database(database) => match constraint(database.constraint()) {
                Some((code, detail)) => match key(&**database) {
                    Some(key) => {
                        Self::taken(database.constraint().unwrap_or_default(), key, code, detail)
                    }
                    None => Self::conflict(code, detail),
                },
                // A row still referenced by other rows, for a constraint without a text of its own.
                None if database.code().as_deref() == Some("23503") => {
                    Self::conflict("in_use", "Something else refers to it; remove that first.")
                }
                None if database.code().is_some_and(|code| away(&code)) => Self::Unavailable(error),
                None => Self::internal(error),
            },
            _ => Self::internal(error),
        }
    }
}

/// Returns whether the same statement may work later, by the code of Postgres: a broken connection
/// (08), a lack of resources (53), an operator's intervention (57), a read-only server (25006), a
/// transaction idle for too long (25P03) or a lost race (40).
fn away(code: &str) -> bool {
    ["08", "40", "53", "57"]
        .iter()
        .any(|class| code.starts_with(class))
        || matches!(code, "25006" | "25P03")
}

/// Returns whether Postgres failed because the disk is full.
pub(crate) fn is_full(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(|database| database.code())
        .as_deref()
        == Some("53100")
}

/// Returns the values of the violated key. The values are parsed from `Key (serial)=(S1) already
/// exists.`, independent of the language of the server.
fn key(error: &(dyn DatabaseError + 'static)) -> Option<String> {
    let detail = error
        .try_downcast_ref::<PgDatabaseError>()
        .filter(|_| error.is_unique_violation())?
        .detail()?;
    let (_, values) = detail.split_once(")=(")?;
    values.rsplit_once(')').map(|(values, _)| values.to_owned())
}

/// Returns the code and sentence for a violated constraint.
fn constraint(name: Option<&str>) -> Option<(&'static str, &'static str)> {
    Some(match name? {
        "objects_name_key" | "nodes_name_key" | "claims_name_key" | "agents_name_key"
        | "tokens_name_key" | "users_name_key" => ("name_taken", "The name is taken."),
        "object_in_use" => ("in_use", "Something else refers to it; remove that first."),
        "node_held" => (
            "held",
            "The node's records are under a legal hold; `muster node release-records` ends the hold.",
        ),
        "nodes_serial_key" => ("serial_taken", "Another node has this serial."),
        "nodes_smbios_uuid_key" => ("uuid_taken", "Another node has this SMBIOS UUID."),
        "nodes_bmc_key" => ("bmc_taken", "Another node has this BMC."),
        "nodes_bmc_system_named" => (
            "bmc_taken",
            "Another node is behind this BMC, and one of the two does not say which machine it is: name `system` for each.",
        ),
        "nodes_console_key" => ("console_taken", "Another node has this console."),
        "node_macs_mac_key" => ("mac_taken", "Another node has this MAC address."),
        "node_macs_address_key" => (
            "address_taken",
            "Another node has this address on the subnet.",
        ),
        "claims_node_key" => ("node_claimed", "The node is claimed already."),
        "claims_replacement_key" => ("replacing", "Another node is on its way for this claim."),
        "claims_unsanitised" => (
            "unsanitised",
            "The node's disks may hold data; wipe it first.",
        ),
        "job_acts_permitted" => (
            "not_permitted",
            "What is done once begins under a permit that was redeemed; redeem it first.",
        ),
        "pair_runs_open_key" => (
            "pairs_under_way",
            "The pool's pairs are being measured already; one run at a time.",
        ),
        "pair_ends_open_key" => (
            "busy",
            "A node of the pool has just been taken into another run; try again shortly.",
        ),
        "operations_open_key" => (
            "busy",
            "The node works on another operation; try again shortly.",
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_mends_is_asked_again_and_what_we_broke_is_not() {
        // Disk full, too many connections, shutdown, starting up, read-only, idle too long, deadlock, connection failure.
        for code in [
            "53100", "53300", "57P01", "57P03", "25006", "25P03", "40P01", "08006",
        ] {
            assert!(away(code), "{code}");
        }
        for code in ["23505", "42P01", "22P02", "XX000", ""] {
            assert!(!away(code), "{code}");
        }
    }
}
