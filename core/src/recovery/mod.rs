//! Recovery of a failing node: a ladder of rungs, each tried once and verified by gates, together
//! with the bounds of the ladder. Pure functions without I/O.
//!
//! A ladder never declares hardware bad. After the last rung the ladder ends, and a person reads
//! the list of tried rungs. If many nodes fail the same way, the fault is attributed to the fleet.
//! No rung then runs on any of the nodes until a person has inspected the fleet.

mod begin; // The first rung of a ladder
mod bounds; // Whether a recovery may begin or continue
mod breaker; // Limits for nodes failing the same way
mod cause; // Cause of a recovery
mod ladder; // Next rung of a ladder
mod policy; // Recovery policy of a pool
mod rung; // Available rungs
mod unfit; // Drain reason written by a node's health check

pub use begin::rungs_for;
pub use bounds::{Hold, Out, Seen, may_begin, may_go_on};
pub use breaker::{UNMENDED_S, WINDOW_S, most, most_unmended};
pub use cause::Cause;
pub use ladder::{Ended, Means, Outcome, Recovery, Tried};
pub use policy::{BY_HAND, RecoveryPolicy};
pub use rung::Rung;
pub use unfit::Unfit;

#[cfg(test)]
mod tests; // The bounds hold for any failure at any time
