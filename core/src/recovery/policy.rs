//! What a pool asks to be done about nodes of it that fail.

use serde::{Deserialize, Serialize};

use super::rung::Rung;

/// What a person gets who asks for a recovery where the pool names no rungs: nothing that writes a disk.
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
    /// What is tried by itself, each at most once, from the mildest to the hardest: `collect`, `restart_services`, `reboot`, `power_cycle`,
    /// `reimage`, `rma`. With none, a node that fails is quarantined.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub rungs: Vec<Rung>,
    /// How often a recovery may begin by itself on one node within `within_h`; 1 to 10. Beyond that, a person must look.
    #[serde(default = "twice")]
    pub per_node: u32,
    /// Hours for which recoveries of a node are counted; at most 90 days.
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
    /// For a pool that has nodes watched and names no rungs.
    pub fn none() -> Self {
        Self {
            rungs: Vec::new(),
            per_node: twice(),
            within_h: a_week(),
        }
    }

    /// What is wrong with it: the member, and why.
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
