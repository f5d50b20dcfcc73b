//! The states of a node and every legal move. Pure: a snapshot and the time in, a single decision
//! out.
//!
//! [`decide`] is the only way to move a node. The server's engine loads the snapshot, calls
//! [`decide`], and stores the decision in the same transaction. A state is the node's position on
//! its way. Power, reachability and the scheduler's view are conditions beside the state, never
//! states.

#![warn(clippy::wildcard_enum_match_arm)]

mod admitting; // Adds the node to the scheduler
mod asked; // Requests on a node at rest: power, gates
mod available; // Powered off, ready to be claimed
pub mod decision; // Next action for a node, and the steps toward it
mod discovered; // An unknown or declared machine, not accepted yet
mod draining; // Leaves the scheduler, jobs first
mod failed; // A phase ran out of retries
mod faults; // A failing node: a ladder, or quarantine
mod hold; // Held back from the scheduler's jobs, and returned
mod imaging; // Writes the image to the disk
mod in_service; // Admitted
mod inspecting; // Identifies the machine and checks its profile
mod installing; // Installs the stack on the image
mod maintenance; // Under a person's control until a given time
mod pairing; // Measured against other nodes of the pool
mod quarantined; // Unused until a person decides
mod repairing; // A rung of a recovery ladder
pub mod requests; // Blockers of a requested action
mod retired; // Removed from the fleet, kept in the history
mod slot; // Waits for the disruption budget
pub mod snapshot; // Input of a decision
pub mod state; // States, requested actions, purposes
pub mod steps; // The steps of each state
pub mod table; // Legal moves as data
mod validating; // Gates
pub mod wait; // Reasons for waiting
mod wiping; // Erases disks and verifies by reading back

use jiff::Timestamp;

use decision::Decision;
use snapshot::Snapshot;
use state::State;

/// Decides the next action for a node. Total: every state answers for every snapshot.
pub fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    match node.state {
        State::Discovered => discovered::decide(node, now),
        State::Inspecting => inspecting::decide(node, now),
        State::Available => available::decide(node, now),
        State::Imaging => imaging::decide(node, now),
        State::Installing => installing::decide(node, now),
        State::Validating => validating::decide(node, now),
        State::Admitting => admitting::decide(node, now),
        State::InService => in_service::decide(node, now),
        State::Draining => draining::decide(node, now),
        State::Repairing => repairing::decide(node, now),
        State::Quarantined => quarantined::decide(node, now),
        State::Failed => failed::decide(node, now),
        State::Wiping => wiping::decide(node, now),
        State::Maintenance => maintenance::decide(node, now),
        State::Retired => retired::decide(node),
    }
}

#[cfg(test)]
mod tests; // Walks through whole lives, and properties holding on every walk
