//! Pairs of nodes, measured by turns: who meets whom, and what failures say. A failure blames an edge; only an end that also fails with known-good
//! partners is blamed itself. An error is never blame, and who cannot be told apart is unknown.

mod blame; // What the trials say of ends and edges
mod hunt; // What is measured next
mod rounds; // Everybody with everybody, in disjoint pairs
mod tally; // Trials, counted by end and edge
#[cfg(test)]
mod tests; // Fabrics with faults, and whether the right ones are found
mod trial; // What a pair's gates come to

pub use blame::{Edge, EdgeVerdict, EndVerdict, Verdicts, Why, verdicts};
pub use hunt::{Limits, Next, next};
pub use rounds::{Pair, round, rounds};
pub use tally::Trial;
pub use trial::{both_ways, one_way};
