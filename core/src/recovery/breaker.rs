//! The fleet's circuit breaker: how many nodes may fail the same way before the fault is attributed
//! to the fleet. A driver, a threshold, a switch or the site's power can make many nodes fail
//! together, or in sequence as sweeps reach each node. Running a ladder on each would take the
//! whole fleet out of service.

/// Window in seconds for counting failures of the same kind together.
pub const WINDOW_S: i64 = 3600;
/// Seconds for which a failed node without a successful recovery is still counted: 7 days. Sweeps
/// run a day apart, and operators usually respond within a week.
pub const UNMENDED_S: i64 = 7 * 24 * 3600;

/// Divisor of the fleet size: 1 of 20 nodes held by pools.
const SHARE: u32 = 20;
/// Minimum for a small fleet, in nodes.
const FEW: u32 = 2;

/// Returns the number of nodes allowed to fail the same way within the window. The number is 1 of
/// 20 nodes held by pools, but at least 2 in a small fleet.
pub fn most(held: u32) -> u32 {
    FEW.max(held / SHARE)
}

/// Returns the number of nodes allowed to be out for the same failure at a time, without a
/// successful recovery. The number is 1 of 10 nodes held by pools, but at least 3 in a small fleet.
pub fn most_unmended(held: u32) -> u32 {
    (FEW + 1).max(2 * held / SHARE)
}
