//! Network profiles: bonds, VLANs, MTU, rails and addresses of an installed node, said once for many nodes and rendered for each of them.

mod check; // What is wrong with a profile in itself
mod files; // What may be written where, on the node
mod language; // What a profile says
mod render; // The files of systemd-networkd
mod resolve; // Which interface of a node is meant, and which addresses it gets
#[cfg(test)]
mod tests;

pub use files::{FOLDER, NetworkFile, SINGLE};
pub use language::{
    Address, Bond, BondMode, HashPolicy, Interface, LacpRate, Match, NetworkProfile, Route, Vlan,
};
pub use render::render;
pub use resolve::{Own, Subject, shared};
