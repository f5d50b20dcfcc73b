//! Queries used by the console only. Every query is bounded by a page, by a time, or by the newest
//! rows.

pub mod fleet; // Counts, stuck nodes, nodes needing a person, failing gates
pub mod nodes; // The machine of a node, and lookup by label
pub mod racks; // Racks and the nodes in them
pub mod stacks; // Stacks in the revisions of pools
pub mod work; // Operations' logs, claims by pool
