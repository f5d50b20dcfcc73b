//! Revisions of pools. A changed image, stack or network profile adds a revision and changes no
//! node. People choose the revision of new claims, and the revision of a single claim.

mod promote; // The revision of new claims
mod propose; // A revision for each change
mod read; // The documents of a stored revision
pub(crate) mod view; // Revisions and their differences, as returned to readers

use muster_core::ids::ObjectId;
use sqlx::PgConnection;

use crate::db;
use crate::db::revisions::StoredRevision;
use crate::error::Error;

pub(crate) use promote::promote;
pub use propose::catch_up;
pub(crate) use propose::propose;
pub(crate) use read::{parse, parse_installable};

/// The longest reason, in bytes.
const REASON: usize = 1000;

/// Returns a revision named by the body of a request.
///
/// # Errors
/// 422 at `/revision` for a number that the pool does not have.
pub(crate) async fn find_named(
    conn: &mut PgConnection,
    pool: ObjectId,
    number: i32,
) -> Result<StoredRevision, Error> {
    let found = db::revisions::find(conn, pool, number).await?;
    found.ok_or_else(|| {
        let detail = format!("The pool has no revision {number}; see `muster pool revisions`.");
        Error::unprocessable("/revision", "not_found", detail)
    })
}

/// Checks the reason of a request. Returns the end of the event's summary: `: REASON`, or an empty text.
///
/// # Errors
/// 422 for a reason above 1000 bytes.
pub(crate) fn check_reason(reason: Option<&str>) -> Result<String, Error> {
    match reason.map(str::trim) {
        None | Some("") => Ok(String::new()),
        Some(reason) if reason.len() > REASON => Err(Error::unprocessable(
            "/reason",
            "out_of_range",
            format!("At most {REASON} bytes."),
        )),
        Some(reason) => Ok(format!(": {reason}")),
    }
}
