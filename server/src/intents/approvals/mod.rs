//! Approvals: requests beyond the limits of a single person.

pub mod decide; // Decisions of the second person
pub(crate) mod limits; // Limits of a single person
pub(crate) mod view; // Approvals as returned to readers
pub(crate) mod withdraw; // Requests of ended tokens and people
