//! Claims: the binding of a node to a pool.

use serde::{Deserialize, Serialize};

use crate::lifecycle::state::State;

/// The state of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimState {
    /// Bound; the node is in service or on the way to service.
    Bound,
    /// Deleted by its owner; the node is being drained, wiped and inspected.
    Releasing,
    /// Ended; kept for history.
    Released,
}

impl ClaimState {
    /// Returns the name stored in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Releasing => "releasing",
            Self::Released => "released",
        }
    }
}

/// The condition a client waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// The claim has a node, which is true from the beginning.
    Bound,
    /// The claim's node is in service.
    #[default]
    InService,
}

impl WaitFor {
    /// Returns the name stored in the database.
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
            .ok_or_else(|| format!("{text:?} is not a condition of a claim"))
    }
}

/// The progress of a claim toward the awaited condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The condition is true now.
    Ready,
    /// The condition is not yet true, and the node is still moving.
    UnderWay,
    /// Automation will not reach the condition; a person must act.
    Stuck,
}

/// Returns the current progress of a claim toward the condition. The result can change back: a node
/// out of service for a while is not ready during that time.
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

/// The reason shown when automation leaves the software of a held node unchanged. A person's
/// request for exactly that node still changes the software.
pub const HELD: &str = "the claim is on hold: only a person's request changes the node's software";

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
