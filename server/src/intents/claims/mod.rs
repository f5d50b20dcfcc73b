//! Claims: a claim binds a node to a pool until it is released.

pub(crate) mod change; // Change of hold and wait_for
pub(crate) mod create; // Binding of a node to a pool
pub mod disks; // What a release does to the disks
pub(crate) mod locked; // A claim and its node under lock
pub mod release; // Release, with the second person beyond a limit
pub mod replace; // Replacement of the node
pub mod replicas; // Claims that a pool creates by itself
pub(crate) mod stack; // The stack of a pool
pub mod undo; // Undo of a release
pub(crate) mod view; // A claim as readers get it
