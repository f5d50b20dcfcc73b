//! A way in which the next job of a kind goes.

use muster_core::gates::Verdict;
use muster_core::wire::node::Failure;

/// A way in which the next job of a kind goes.
#[derive(Clone, Debug)]
pub enum Turn {
    Fails(Failure),
    /// Every gate of the run ends so.
    Gates(Verdict),
}
