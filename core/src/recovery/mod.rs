//! Recovery of a node that fails: a ladder of rungs, each tried once and verified by gates, and what bounds it. Pure.
//!
//! A ladder never decides that hardware is bad: it ends where its rungs end, and a person reads what was tried. When many nodes fail the same way it
//! is the fleet and not the nodes, and nothing is tried on any of them until a person has looked.

mod begin; // Where a ladder begins
mod bounds; // Whether a recovery may begin or go on
mod breaker; // How many nodes may fail the same way
mod cause; // What a recovery is for
mod ladder; // Which rung comes next
mod policy; // What a pool asks for
mod rung; // What can be tried
mod unfit; // What a health check tells the scheduler

pub use begin::rungs_for;
pub use bounds::{Hold, Out, Seen, may_begin, may_go_on};
pub use breaker::{UNMENDED_S, WINDOW_S, most, most_unmended};
pub use cause::Cause;
pub use ladder::{Ended, Means, Outcome, Recovery, Tried};
pub use policy::{BY_HAND, RecoveryPolicy};
pub use rung::Rung;
pub use unfit::Unfit;

#[cfg(test)]
mod tests; // The bounds hold whatever fails, and when
