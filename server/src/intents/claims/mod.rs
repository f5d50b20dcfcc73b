//! Claims. A claim binds a node to a pool until the release.

pub(crate) mod assign; // Assignment of a revision
pub(crate) mod change; // Change of hold and wait_for
pub(crate) mod create; // Binding of a node to a pool
pub mod disks; // Treatment of the disks by a release
pub(crate) mod locked; // A claim and its node under lock
pub mod release; // Release, with the second person beyond a limit
pub mod replace; // Replacement of the node
pub mod replicas; // Claims created for a pool's `replicas`
pub mod undo; // Undo of a release
pub(crate) mod view; // A claim as returned to readers
pub(crate) mod write_off; // Nodes out of service that do not count against a budget
