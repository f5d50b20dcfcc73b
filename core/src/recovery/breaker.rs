//! The fleet's circuit breaker: how many nodes may fail the same way before it is not the nodes. A driver, a threshold, a switch or a site's power make
//! many nodes fail at once, or one after the other as their sweeps come round; a ladder on each of them would take the whole fleet out.

/// Seconds for which failures of one kind are counted together.
pub const WINDOW_S: i64 = 3600;
/// Seconds for which a node that failed that way, and was not mended since, is still counted: sweeps are a day apart, and people look within a week.
pub const UNMENDED_S: i64 = 7 * 24 * 3600;

/// One of so many nodes in service.
const SHARE: u32 = 20;
/// Of a small fleet.
const FEW: u32 = 2;

/// Nodes that one kind of failure may take out within the window: one of twenty in service, but two of a small fleet.
pub fn most(serving: u32) -> u32 {
    FEW.max(serving / SHARE)
}

/// Nodes that may be out for one kind of failure at a time, without one of them mended: one of ten in service, but three of a small fleet.
pub fn most_unmended(serving: u32) -> u32 {
    (FEW + 1).max(2 * serving / SHARE)
}
