//! Measurements between pairs of nodes in rounds: choice of the pairs, and verdicts from the
//! failures. A failure blames the edge. An end is blamed only after failures with known-good
//! partners. Errors never cause blame, and undecided ends are unknown.

mod blame; // Verdicts about ends and edges from the trials
mod hunt; // Choice of the next measurements
mod rounds; // All pairs, in rounds of disjoint pairs
mod tally; // Trials, counted by end and edge
#[cfg(test)]
mod tests; // Fabrics with known faults, and the verdicts expected
mod trial; // Verdict of a pair from its gate results

pub use blame::{Edge, EdgeVerdict, EndVerdict, Verdicts, Why, verdicts};
pub use hunt::{Limits, Next, next};
pub use rounds::{Pair, round, rounds};
pub use tally::Trial;
pub use trial::{both_ways, one_way};
