//! Slots of the disruption budget. An act that takes a serving node out of service needs a slot, and
//! the node serves until a slot is free. A release needs no slot: the node leaves the pool.

use jiff::{SignedDuration, Timestamp};

use super::decision::Decision;
use super::snapshot::NoSlot;
use super::wait::{Wait, WaitReason};

/// Time until a waiting node asks for a slot again without a wake-up.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(60);
/// Time until the budgets are read again after a change of the pool or site.
const READ_AGAIN: SignedDuration = SignedDuration::from_secs(2);

/// Waits for a slot.
pub(super) fn wait(now: Timestamp, obstacle: &NoSlot) -> Decision {
    let (condition, again) = match obstacle {
        NoSlot::Full(full) => (
            format!("a slot of the disruption budget: {full}"),
            ASK_AGAIN,
        ),
        NoSlot::Changing => (
            "a slot of the disruption budget: the pool or site is being changed".to_owned(),
            READ_AGAIN,
        ),
    };
    Decision::Wait(Wait {
        reason: WaitReason::Slot,
        condition,
        owner: "muster".into(),
        next_action: "take the node out of service once a slot is free".into(),
        until: Some(now + again),
    })
}
