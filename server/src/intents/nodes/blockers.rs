//! Blockers of an action: sentences about rules that forbid the action now.

use crate::error::Error;

/// Rejects the action where any blocker exists.
///
/// # Errors
/// 409 `blocked` with the blockers.
pub(crate) fn refuse(blockers: &[String]) -> Result<(), Error> {
    match blockers.is_empty() {
        true => Ok(()),
        false => Err(Error::conflict("blocked", blockers.join(" "))),
    }
}
