//! Reads the documents of a stored revision.

use muster_core::revisions::Revision;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::db::revisions::StoredRevision;
use crate::document;
use crate::error::Error;

/// Parses the documents of a revision.
///
/// # Errors
/// 409 `unreadable` with the number, the document and the reason.
pub(crate) fn parse(stored: &StoredRevision) -> Result<Revision, Error> {
    Ok(Revision {
        image: document_of(stored, "image", &stored.image)?,
        stack: document_of(stored, "stack", &stored.stack)?,
        network_profile: stored
            .network_profile
            .as_ref()
            .map(|profile| document_of(stored, "network profile", profile))
            .transpose()?,
    })
}

/// Parses a revision to be installed.
///
/// # Errors
/// As [`parse`]; 409 `other_image` where the stack is not locked against the image.
pub(crate) fn parse_installable(stored: &StoredRevision) -> Result<Revision, Error> {
    let revision = parse(stored)?;
    match revision.find_mismatch() {
        None => Ok(revision),
        Some(why) => Err(Error::conflict(
            "other_image",
            format!("Revision {} cannot be installed: {why}.", stored.number),
        )),
    }
}

fn document_of<T: DeserializeOwned>(
    stored: &StoredRevision,
    kind: &str,
    document: &Value,
) -> Result<T, Error> {
    document::stored_spec(document).map_err(|why| {
        let detail = format!(
            "The {kind} of revision {} cannot be read ({why}). Write the {kind} again with PUT, and promote or assign the new revision.",
            stored.number
        );
        Error::conflict("unreadable", detail)
    })
}
