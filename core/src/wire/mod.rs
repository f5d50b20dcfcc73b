//! Messages on the wire, protocol 1. Golden files in `core/golden/` hold one of each: a change that breaks an older peer shows there.

pub mod adopt; // Taking over a machine that somebody else installed
pub mod bmc; // BMCs in orders
pub mod calls; // Between server and agent, over HTTP
pub mod consoles; // What nodes wrote on their consoles
pub mod enrol; // How an agent comes by its certificate
pub mod failure; // Codes and messages of failures
pub mod firmware; // Firmware and BIOS in orders
pub mod headers; // What every call says beside its body
pub mod job; // A job and its kinds
pub mod login; // How the agent logs in to a node
pub mod members; // Who is in a cluster
pub mod node; // Between agent and muster-node, over SSH and the boot listener
pub mod noticed; // How late a restarted system was seen to answer
pub mod orders; // Which orders an agent can read
pub mod pair; // The two ends of a pair gate
pub mod result; // How a job ended
pub mod scheduler; // What schedulers say of nodes that take no jobs

/// The protocol this build speaks. A server also accepts the one before it.
pub const PROTOCOL: u32 = 1;

/// Header of every call of an agent and of its answer: the call's id, in the logs of both.
pub const REQUEST: &str = "x-request-id";

#[cfg(test)]
mod tests; // Golden files
