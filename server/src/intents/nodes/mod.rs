//! Nodes: requests of actions, registration and change.

pub mod actions; // Requests of actions
pub(crate) mod addresses; // Reservation of addresses
pub mod adopt; // Adoption of a machine that runs already
pub(crate) mod erasures; // Actions that erase disks, beyond the hourly limit
pub(crate) mod matching; // Match of a discovered machine with a declared node
pub mod parts; // Components and their replacement
pub mod place; // Rename and move
mod resolve; // The spec as rows
pub mod view; // A node as readers get it
pub mod wishes; // Which actions a node allows, and their record
pub(crate) mod write; // Registration, change and removal
