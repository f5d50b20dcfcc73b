//! Approvals: what one person may not do alone.

pub mod decide; // The decision of the second person
pub(crate) mod limits; // What one person may do alone
pub(crate) mod view; // An approval as readers get it
