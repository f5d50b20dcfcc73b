//! The nodes of the main job, and the time limits of an act and of a step.

use std::time::Duration;

use super::watch::Fleet;

/// Longest duration of an act. Emulated machines on two cores are slow and need tens of minutes for
/// the work of minutes on a real server.
pub(super) const LONG: Duration = Duration::from_secs(45 * 60);
/// Longest duration of a step of the scheduler or of the server, without a boot.
pub(super) const SHORT: Duration = Duration::from_secs(5 * 60);

/// The node passing all gates. The next constants name the node with the failing disk and the node
/// with too little memory.
pub(super) const GOOD: &str = "n1";
pub(super) const FAILING: &str = "n2";
pub(super) const SMALL: &str = "n3";

/// The disk of [`FAILING`] that raises its warning.
pub(super) const BAD_DISK: &str = "MUSTER-NVME-B-2";
/// Bit 2 of a disk's critical warning: reliability degraded (NVMe base specification, SMART log).
pub(super) const DEGRADED: u8 = 4;

/// Returns the last seen state of a node, or an empty string for a node not yet seen.
pub(super) fn state<'a>(fleet: &'a Fleet, node: &str) -> &'a str {
    fleet.get(node).map_or("", |status| status.state.as_str())
}
