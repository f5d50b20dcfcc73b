//! Claims: the binding of a node to a pool.

use crate::lifecycle::state::State;
use crate::words;

words! {
    /// The state of a claim.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    ClaimState, "claim state" {
        /// Bound; the node is in service or on the way to service.
        Bound = "bound",
        /// Deleted by its owner; the node is being drained, wiped and inspected.
        Releasing = "releasing",
        /// Ended; kept for history.
        Released = "released",
    }
}

words! {
    /// The condition a client waits for.
    #[derive(Default)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    WaitFor, "condition of a claim" {
        /// The claim has a node, which is true from the beginning.
        Bound = "bound",
        /// The claim's node is in service.
        #[default]
        InService = "in_service",
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
                    "{state}: no claim holds the node"
                );
            }
        }
    }
}
