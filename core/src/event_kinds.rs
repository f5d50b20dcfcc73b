//! Renamed kinds of events. A stored event keeps the kind of its time. A filter for the present kind
//! also finds events of the former kind.

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

/// Returns the present kind of a former kind; `None` for a kind without a new name.
pub fn present(former: &str) -> Option<&'static str> {
    let found = RENAMED.iter().find(|(old, _)| *old == former);
    found.map(|(_, new)| *new)
}

/// Returns the former kind of a present kind.
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
