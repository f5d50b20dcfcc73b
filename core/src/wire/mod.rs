//! Messages on the wire, protocol 1. Golden files in `core/golden/` contain an example of each
//! message. A change that breaks an older peer changes a golden file.

pub mod adopt; // Adopting a machine installed without Muster
pub mod bmc; // BMC addresses and logins in orders
pub mod calls; // Between server and agent, over HTTP
pub mod consoles; // Console output of nodes
pub mod enrol; // Issue and renewal of an agent's certificate
pub mod failure; // Codes and messages of failures
pub mod firmware; // Firmware and BIOS in orders
pub mod headers; // Headers of every call
pub mod job; // A job and its kinds
pub mod login; // Login of the agent to a node
pub mod members; // Members of a cluster
pub mod node; // Between agent and muster-node, over SSH and the boot listener
pub mod noticed; // Delay in noticing that a restarted system answers
pub mod orders; // Order kinds supported by an agent
pub mod pair; // The two ends of a pair gate
pub mod result; // Outcome of a job
pub mod scheduler; // Scheduler reports about nodes out of service

/// Protocol version of this build. A server also accepts the previous version.
pub const PROTOCOL: u32 = 1;

/// Header of every agent call and its response: the id of the call, for the logs of both sides.
pub const REQUEST: &str = "x-request-id";

#[cfg(test)]
mod tests; // Golden files
