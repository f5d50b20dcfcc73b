//! Kinds of events that were renamed. Events keep the kind that they were written with; a filter for
//! the present kind finds events of the former kind as well.

/// Former kind, present kind. CHANGELOG.md lists them for users.
pub const RENAMED: [(&str, &str); 14] = [
    ("agent.clock_right", "agent.clock_restored"),
    ("approval.asked", "approval.requested"),
    ("claim.not_replaced", "claim.replacement_failed"),
    ("drift.mended", "drift.resolved"),
    ("node.asked", "node.action_requested"),
    ("node.disks_out", "node.disks_removed"),
    ("node.wish_granted", "node.action_done"),
    ("node.wish_refused", "node.action_refused"),
    ("operation.cancel_asked", "operation.cancel_requested"),
    ("pairs.begun", "pairs.started"),
    ("recovery.begun", "recovery.started"),
    ("step.held_back", "step.unreadable"),
    ("waiver.agreed", "waiver.approved"),
    ("waiver.asked", "waiver.requested"),
];

/// The present kind of a former one; `None` where the kind was not renamed.
pub fn present(former: &str) -> Option<&'static str> {
    let found = RENAMED.iter().find(|(old, _)| *old == former);
    found.map(|(_, new)| *new)
}

/// The former kind of a present one.
pub fn former(present: &str) -> Option<&'static str> {
    let found = RENAMED.iter().find(|(_, new)| *new == present);
    found.map(|(old, _)| *old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rename_leads_both_ways_and_keeps_its_noun() {
        for (old, new) in RENAMED {
            assert_eq!((present(old), former(new)), (Some(new), Some(old)));
            assert_eq!((present(new), former(old)), (None, None), "{old} to {new}");
            // `node.*` finds both.
            assert_eq!(old.split('.').next(), new.split('.').next());
        }
    }
}
