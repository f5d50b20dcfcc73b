//! What the console reads and no other caller does. Every query is bounded: by a page, by a time, or by the newest rows.

pub mod fleet; // Counts, who is stuck, who needs a person, what fails
pub mod nodes; // One node beside its document
pub mod racks; // Racks and what stands in them
pub mod work; // Operations' logs, claims by pool
