//! Runs of pairs: the participating nodes, the measurements of each pair, and the nodes blamed for
//! failures.

pub mod ends; // Nodes of a run
pub mod runs; // Runs, from their beginning to their end
pub mod trials; // One measurement of two ends
