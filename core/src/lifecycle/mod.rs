//! The states of a node and every legal move. Pure: a snapshot and the time in, one decision out.
//!
//! [`decide`] is the only way a node gets anywhere: the server's engine loads the snapshot, asks, and persists the answer in one transaction.
//! A state says where a node is on its way; power, reachability and what the scheduler says are conditions beside it, never states.

#![warn(clippy::wildcard_enum_match_arm)]

mod admitting; // Into the scheduler
mod asked; // What is done for a person where a node rests: its power, its gates
mod available; // Powered off, ready to be claimed
pub mod decision; // What is to be done next, and the shared way of working through steps
mod discovered; // An unknown or declared machine, not accepted yet
mod draining; // Out of the scheduler, jobs first
mod failed; // A phase ran out of retries
mod faults; // A node that fails: a ladder, or quarantine
mod imaging; // The image goes onto the disk
mod in_service; // Admitted
mod inspecting; // What is this machine, and does it fit its profile?
mod installing; // The stack goes onto the image
mod maintenance; // In a person's hands until a time
pub mod pairing; // Measured against others of its pool
mod quarantined; // Not to be used until a person decides
mod repairing; // A ladder's rung
mod retired; // Out of the fleet, remembered
pub mod snapshot; // What a decision is made from
pub mod state; // States, wishes, purposes
pub mod steps; // The acts a state consists of
pub mod table; // Legal moves as data
mod validating; // Gates
pub mod wait; // Why a node waits
mod wiping; // Disks are erased and read back

use jiff::Timestamp;

use decision::Decision;
use snapshot::Snapshot;
use state::State;

/// What to do next with a node. Total: every state answers for every snapshot.
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
mod tests; // Walks of whole lives, and the properties that must hold on every one
