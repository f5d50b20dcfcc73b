//! Nodes: requests of actions, registration and change.

pub mod actions; // Requests of actions
pub(crate) mod addresses; // Reservation of addresses
pub mod adopt; // Adoption of a running machine
pub(crate) mod blockers; // Refusal of a blocked action
pub(crate) mod budgets; // Power budgets of racks
pub(crate) mod erasures; // Actions erasing disks, beyond the hourly limit
pub mod holds; // Legal holds
pub(crate) mod matching; // Match of a discovered machine with a declared node
pub(crate) mod networks; // Networks of BMCs and consoles
pub mod parts; // Components and their replacement
pub(crate) mod pins; // Pinned certificates of BMCs
pub mod place; // Rename and move
pub mod requests; // Allowed actions, and the record of a request
pub(crate) mod resolve; // The spec as rows
pub mod view; // A node as returned to readers
pub(crate) mod write; // Registration, change and removal
