//! The fleet's circuit breaker: how many nodes may fail the same way before it is not the nodes. A driver, a threshold, a switch or a site's power make
//! many nodes fail at once, or one after the other as their sweeps come round; a ladder on each of them would take the whole fleet out.

/// Seconds for which failures of one kind are counted together.
pub const WINDOW_S: i64 = 3600;
/// Seconds for which a node that failed that way, and was not mended since, is still counted: sweeps are a day apart, and people look within a week.
pub const UNMENDED_S: i64 = 7 * 24 * 3600;

/// One of so many nodes that pools hold.
const SHARE: u32 = 20;
/// Of a small fleet.
const FEW: u32 = 2;

/// Nodes that one kind of failure may take out within the window: one of twenty that pools hold, but two of a small fleet.
pub fn most(held: u32) -> u32 {
    FEW.max(held / SHARE)
}

/// Nodes that may be out for one kind of failure at a time, without one of them mended: one of ten that pools hold, but three of a small fleet.
pub fn most_unmended(held: u32) -> u32 {
    (FEW + 1).max(2 * held / SHARE)
}
