//! Who plays in the main job, and how long an act of it may take.

use std::time::Duration;

use super::watch::Fleet;

/// Emulated machines on two cores are slow; what takes a server minutes takes them tens of minutes.
pub(super) const LONG: Duration = Duration::from_secs(45 * 60);

/// The node that passes, the one whose disk goes bad, the one that is too small.
pub(super) const GOOD: &str = "n1";
pub(super) const FAILING: &str = "n2";
pub(super) const SMALL: &str = "n3";

/// The state a node was last seen in; empty when it was not seen.
pub(super) fn state<'a>(fleet: &'a Fleet, node: &str) -> &'a str {
    fleet.get(node).map_or("", |status| status.state.as_str())
}
