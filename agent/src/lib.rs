//! The agent acts for a single site: it boots, commands and admits nodes as decided by the server.
//! The agent never accesses Postgres, and all of its local data can be lost without harm.

pub mod blobs; // Content-addressed cache of images and bundles
pub mod bmc; // Power and boot order by Redfish or IPMI
pub mod boot; // DHCP, TFTP, HTTP boot and the iPXE script
pub mod cluster; // Admission to Slurm
pub mod consoles; // Serial console output of nodes
pub mod contact; // Time of the last contact with the server
mod pinned; // TLS to servers without a public authority
mod private; // Files closed for other users of the machine
pub mod ssh; // SSH, the only command channel to a node
pub mod watch; // Deadline, cancellation and status text of a long wait
pub mod work; // Leases jobs, runs them, reports results
