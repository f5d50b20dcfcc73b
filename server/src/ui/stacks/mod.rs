//! The list of stacks, and one stack with the driver, the packages, the settings and the pools.

mod driver; // The driver, with the facts of the branch
pub(super) mod list; // The list
mod packages; // The packages of a stack, by page and by name
pub(super) mod page; // One stack
mod uses; // Pools with a stack, within the reader's scope
