//! Rules between a declared object and the nodes that depend on it. The write of a node checks the
//! node against the object. The write of the object checks the same rule from the other side, so
//! that no order of writes breaks a rule. A rule already broken by the stored object does not block
//! other changes.
//!
//! | object | node | a change of the object is |
//! |---|---|---|
//! | subnet: network, agent, gateway, range | address of each MAC | refused here |
//! | subnet: site; rack: site | site | refused in `residents.rs` |
//! | rack: units | rack unit | refused here |
//! | site and credential: networks | addresses of BMC and console | refused in `networks.rs` |
//! | rack: power budget | reserved watts | shown by the plan; further nodes wait |
//! | credential: purpose, length of the user | power control | refused here |
//! | credential: user, secret | power control | shown by the plan |
//! | hardware profile | profile | shown by the plan |
//! | every kind: removal | every reference | refused in `declared/write.rs` |

pub(super) mod credentials; // Purpose and user against the power control of nodes
pub(super) mod racks; // Units against the places of nodes
pub(super) mod refusal; // The refusal, with the number and names of the nodes
pub(super) mod subnets; // Addresses against the addresses of nodes
