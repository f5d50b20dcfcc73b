//! Simulated machines and the agent acting on the machines. Tests and the simulated fleet use both
//! behind the agents' protocol; the server on the other side is the real server.

pub mod agent; // The agent process
mod bmc; // Login to the BMC and password change
mod firmware; // Firmware and BIOS
pub mod habits; // Durations and failure rates
pub mod keep; // Machines that outlive the process
mod kept_rack; // A rack in a directory
pub mod machine; // A machine and its log
mod pair; // Measurements between two machines
mod power; // Power on and power cycle on request
pub mod rack; // Machines, scheduler and fabric: the world outside the server
mod scheduler; // The controller of the scheduler
