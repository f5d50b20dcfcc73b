//! Seals over tokens, people, role bindings and sessions. A row counts only with a valid seal, which
//! needs the master key. Rows of the version before are adopted once, and sealed.

pub mod adopt; // Adopts rows of the version before
pub mod again; // Seals rows again after a rotation of the master key
pub mod counts; // Whether a row counts, at each use
pub mod text; // The sealed members of a row
pub mod window; // The time in which rows without a valid seal count
pub mod write; // Seals a row after a write
