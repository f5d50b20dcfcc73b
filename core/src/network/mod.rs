//! Network profiles: bonds, VLANs, MTU, rails and addresses of an installed node. A profile is
//! written once for many nodes and rendered for each node.

mod check; // Errors in a profile itself
mod files; // Allowed files and paths on the node
mod language; // Types of a profile
mod render; // The files of systemd-networkd
mod resolve; // A node's interfaces and addresses for a profile
#[cfg(test)]
mod tests;

pub use files::{FOLDER, NetworkFile, SINGLE};
pub use language::{
    Address, Bond, BondMode, HashPolicy, Interface, LacpRate, Match, NetworkProfile, Route, Vlan,
};
pub use render::render;
pub use resolve::{Own, Subject, shared};
