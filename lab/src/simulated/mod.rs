//! Simulated machines and the agent that acts on them: what stands behind the agents' protocol in tests and in a simulated fleet.
//! The server on the other side is the real one.

pub mod agent; // The agent process
mod bmc; // Whom its BMC lets in
mod firmware; // Its firmware and BIOS
pub mod habits; // How long machines take, and how often something goes wrong
pub mod keep; // Machines that outlive their process
mod kept_rack; // A rack in a directory
pub mod machine; // One machine and its log
mod pair; // Two of them, measured against each other
mod power; // Its power, because somebody asked
pub mod rack; // Everything outside of the server
mod scheduler; // The controller of the scheduler
