//! Claims: one node bound to one pool.

use serde::{Deserialize, Serialize};

use crate::lifecycle::state::State;

/// How far a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimState {
    /// Bound; the node is on its way to service, or there.
    Bound,
    /// Deleted by its owner; the node is being drained, wiped and inspected.
    Releasing,
    /// Gone; kept for history.
    Released,
}

impl ClaimState {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Releasing => "releasing",
            Self::Released => "released",
        }
    }
}

/// What whoever waits for a claim waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// Its node is chosen, which is so from the beginning.
    Bound,
    /// Its node serves.
    #[default]
    InService,
}

impl WaitFor {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::InService => "in_service",
        }
    }
}

impl std::str::FromStr for WaitFor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = [Self::Bound, Self::InService];
        all.into_iter()
            .find(|word| word.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not what a claim can be waited for"))
    }
}

/// How a claim stands beside what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is so now.
    Ready,
    /// Not yet.
    UnderWay,
    /// Not by itself any more: a person must act.
    Stuck,
}

/// How a claim stands beside what it waits for. It is of now: a node that leaves service for a while is not ready meanwhile.
pub fn standing(wait_for: WaitFor, claim: ClaimState, node: State) -> Standing {
    match (claim, wait_for) {
        (ClaimState::Releasing | ClaimState::Released, _) => Standing::Stuck,
        (ClaimState::Bound, WaitFor::Bound) => Standing::Ready,
        (ClaimState::Bound, WaitFor::InService) => match node {
            State::InService => Standing::Ready,
            State::Available
            | State::Imaging
            | State::Installing
            | State::Validating
            | State::Admitting
            | State::Draining
            | State::Repairing
            | State::Inspecting
            | State::Wiping => Standing::UnderWay,
            State::Discovered
            | State::Quarantined
            | State::Failed
            | State::Maintenance
            | State::Retired => Standing::Stuck,
        },
    }
}

/// Why nothing that happens by itself changes what a held node runs. A person who asks for exactly that node changes it all the same.
pub const HELD: &str = "its claim is held: what it runs changes only when a person asks for that";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_ready_when_what_it_waits_for_is_so_and_only_then() {
        for &state in State::ALL {
            let bound = standing(WaitFor::Bound, ClaimState::Bound, state);
            assert_eq!(bound, Standing::Ready, "{state}: it is bound");
            let serves = standing(WaitFor::InService, ClaimState::Bound, state);
            assert_eq!(
                serves == Standing::Ready,
                state == State::InService,
                "{state}"
            );
            assert_eq!(
                serves == Standing::Stuck,
                state.is_resting() && !matches!(state, State::InService | State::Available),
                "{state}: what rests does not go on by itself"
            );
            for (wait_for, claim) in [
                (WaitFor::Bound, ClaimState::Releasing),
                (WaitFor::InService, ClaimState::Releasing),
                (WaitFor::InService, ClaimState::Released),
            ] {
                assert_eq!(
                    standing(wait_for, claim, state),
                    Standing::Stuck,
                    "{state}: nobody's any more"
                );
            }
        }
    }
}
