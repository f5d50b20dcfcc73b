//! The fleet's circuit breaker: how many nodes may fail the same way before it is not the nodes. A driver, a threshold, a switch or a site's power make
//! many nodes fail at once; a ladder on each of them would take the whole fleet out.

/// Seconds for which failures of one kind are counted together.
pub const WINDOW_S: i64 = 3600;

/// One of so many nodes in service.
const SHARE: u32 = 20;
/// Of a small fleet.
const FEW: u32 = 2;

/// Nodes that one kind of failure may take out within the window: one of twenty in service, but two of a small fleet.
pub fn most(serving: u32) -> u32 {
    FEW.max(serving / SHARE)
}
