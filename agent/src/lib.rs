//! The agent acts for one site: it boots, commands and admits nodes as the server decided. It never sees Postgres and keeps nothing it cannot lose.

pub mod blobs; // Content-addressed cache of images and bundles
pub mod bmc; // Power and boot order by Redfish or IPMI
pub mod boot; // DHCP, TFTP, HTTP boot and the iPXE script
pub mod cluster; // Admission to Slurm
pub mod consoles; // What nodes write on their serial consoles
pub mod contact; // When the server was last heard
mod pinned; // TLS to servers that no public authority vouches for
pub mod ssh; // The one way to command a node
pub mod watch; // Deadline, cancellation and voice of a long wait
pub mod work; // Leases jobs, acts, reports
