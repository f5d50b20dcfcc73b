//! The sandbox of a gate's tool: network, disks and rights, in the process that becomes the tool.

mod disks; // Nodes of disks, in a mount namespace
mod network; // The network namespace
mod rights; // Capabilities

use std::io;

use muster_core::gates::Sandbox;

/// Enters a sandbox. Another user than root has no right that a sandbox could take.
///
/// # Errors
/// The refusal of the kernel; the tool must not start then.
pub(super) fn enter(sandbox: Sandbox) -> io::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    network::enter(sandbox.network)?;
    disks::enter(sandbox.disks)?;
    rights::drop_beside(sandbox.disks)
}
