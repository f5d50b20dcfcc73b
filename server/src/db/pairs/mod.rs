//! Runs of pairs with the participating nodes, the measurements of each pair, and the nodes blamed
//! for failures. A run belongs to one pool.

pub mod ends; // Nodes of a run
pub mod evidence; // Removal of old evidence
pub mod runs; // Runs, from start to close
pub mod trials; // Measurements between two nodes
