//! Runs of pairs: which nodes take part, what each pair measured, whom failures blame.

pub mod ends; // Nodes of a run
pub mod runs; // Runs, from their beginning to their end
pub mod trials; // One measurement of two ends
