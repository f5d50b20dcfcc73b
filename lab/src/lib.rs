//! The virtual rack: QEMU machines with stateful Redfish BMCs in a network namespace of their own, and a real Slurm controller
//! beside them. Nothing in here knows how Muster works inside: to Muster the rack is hardware, to the rack Muster is a stranger.
//!
//! Everything a rack starts lives in its namespace, so the kernel itself can say what belongs to it: that is how
//! [`rack::clean`] finds what a killed run left behind.

pub mod bmc; // A Redfish service per machine, with faults on request
pub mod control; // The rack from outside its process: a unix socket and its client
pub mod demo; // The main job, from powered-off machines to a Slurm node and back
pub mod error; // What can go wrong in the lab
mod files; // Small files, replaced whole
pub mod fleet; // Thousands of simulated nodes behind the real agents' protocol
mod ip; // Running `ip`
pub mod machine; // One QEMU machine: power, firmware settings, console, disks, faults
pub mod netns; // The rack's network namespace
pub mod nfs; // A file system that nodes share
mod parts; // Muster's own programs, as processes that can be killed
pub mod plan; // What a rack is made of
pub mod rack; // The namespace, its network, and everything in it
mod run_dir; // The directory of a run, and nobody else's
pub mod simulated; // Machines without hardware, and the agent that acts on them
pub mod slot; // A machine and its BMC
pub mod slurm; // munged and slurmctld inside the namespace
mod supervisor; // Keeping a daemon running
pub mod switch; // What announces the ports that machines are plugged into

pub use error::LabError;
pub use plan::RackPlan;
pub use rack::Rack;
