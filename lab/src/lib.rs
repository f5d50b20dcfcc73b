//! The virtual rack: QEMU machines with stateful Redfish BMCs in a separate network namespace,
//! beside a real Slurm controller. The rack is independent of Muster's internals: Muster sees
//! ordinary hardware, and the rack sees an ordinary client.
//!
//! Every process of a rack runs in the namespace of the rack, so the kernel can list the processes.
//! With the list, [`rack::clean`] finds the leftovers of a killed run.

pub mod bmc; // A Redfish service per machine, with faults on request
pub mod control; // A unix socket for other processes, and its client
pub mod demo; // The main scenario: powered-off machines become Slurm nodes and back
pub mod error; // Errors of the lab
mod files; // Small files, replaced atomically
pub mod fleet; // Thousands of simulated nodes behind the real agents' protocol
mod ip; // Runs `ip`
pub mod machine; // A QEMU machine: power, firmware settings, console, disks, faults
pub mod netns; // The rack's network namespace
pub mod nfs; // An NFS server, for a file system shared by nodes
mod parts; // Muster's own programs, as processes that a test can kill
pub mod plan; // The plan of a rack: machines, BMCs, disks, addresses
pub mod rack; // The namespace, its network, and the machines
mod run_dir; // The directory of a run, locked while in use
pub mod simulated; // Machines without hardware, and their simulated agent
pub mod slot; // A machine and its BMC
pub mod slurm; // munged and slurmctld inside the namespace
mod supervisor; // Keeps a daemon running
pub mod switch; // Announces switch ports to the machines by LLDP

pub use error::LabError;
pub use plan::RackPlan;
pub use rack::Rack;
