//! The recovery policy of a pool, for its failing nodes.

use serde::{Deserialize, Serialize};

use super::rung::Rung;

/// The rungs of a recovery requested by a person, if the pool names no rungs. None of the rungs
/// writes a disk.
pub const BY_HAND: [Rung; 4] = [
    Rung::Collect,
    Rung::RestartServices,
    Rung::Reboot,
    Rung::PowerCycle,
];

/// A ladder with its bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RecoveryPolicy {
    /// The rungs tried automatically, each at most once, from the mildest to the most severe:
    /// `collect`, `restart_services`, `reboot`, `power_cycle`, `reimage`, `rma`. If empty, a
    /// failing node is quarantined.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub rungs: Vec<Rung>,
    /// Maximum number of automatic recoveries on a node within `within_h`; 1 to 10. Above the
    /// maximum, a person must inspect the node.
    #[serde(default = "twice")]
    pub per_node: u32,
    /// Period in hours for counting recoveries of a node; at most 90 days.
    #[serde(default = "a_week")]
    pub within_h: u32,
}

fn twice() -> u32 {
    2
}

fn a_week() -> u32 {
    7 * 24
}

impl RecoveryPolicy {
    /// Returns the policy of a pool with health monitoring and without rungs.
    pub fn none() -> Self {
        Self {
            rungs: Vec::new(),
            per_node: twice(),
            within_h: a_week(),
        }
    }

    /// Returns whether recoveries by this policy may write more root disks than by the policy
    /// `before`: by a further rung that erases, or by more recoveries of a node. A policy without
    /// rungs recovers no node, so its limits count as the default ones.
    pub fn may_erase_more(&self, before: &Self) -> bool {
        if self.rungs.is_empty() {
            return false;
        }
        let default = Self::none();
        let before = match before.rungs.is_empty() {
            true => &default,
            false => before,
        };
        let erases = |policy: &Self| policy.rungs.iter().any(|rung| rung.erases());
        (erases(self) && !erases(before))
            || self.per_node > before.per_node
            || self.within_h < before.within_h
    }

    /// Returns the problems of the policy, as member and reason.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.rungs.windows(2).any(|pair| pair[0] >= pair[1]) {
            faults.push((
                "rungs",
                "Each rung once, from the mildest to the hardest.".to_owned(),
            ));
        }
        if !(1..=10).contains(&self.per_node) {
            faults.push(("per_node", "1 to 10 recoveries.".to_owned()));
        }
        if !(1..=90 * 24).contains(&self.within_h) {
            faults.push(("within_h", "1 to 2160 hours.".to_owned()));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_may_erase_more_by_a_rung_or_by_more_recoveries() {
        let policy = |rungs: &[Rung], per_node, within_h| RecoveryPolicy {
            rungs: rungs.to_vec(),
            per_node,
            within_h,
        };
        let before = policy(&[Rung::Reboot], 2, 168);
        let erasing = policy(&[Rung::Reboot, Rung::Reimage], 2, 168);
        for more in [
            &erasing,
            &policy(&[Rung::Reboot], 3, 168),
            &policy(&[Rung::Reboot], 2, 167),
        ] {
            assert!(more.may_erase_more(&before), "{more:?}");
        }
        for less in [
            &before,
            &policy(&[Rung::Collect, Rung::PowerCycle, Rung::Rma], 1, 200),
            &policy(&[], 10, 1),
        ] {
            assert!(!less.may_erase_more(&before), "{less:?}");
            assert!(!less.may_erase_more(&erasing), "{less:?}");
        }
        let unused = policy(&[], 10, 1);
        assert!(policy(&[Rung::Reboot], 10, 168).may_erase_more(&unused));
    }
}
