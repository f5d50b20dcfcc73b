//! Rules of requested actions: mandatory reasons, and blockers.

use super::state::{State as NodeState, Wish};
use super::table::wish_allowed;

/// Returns whether the action must carry a reason, because the next person on call needs the reason.
pub fn needs_reason(wish: Wish) -> bool {
    matches!(
        wish,
        Wish::Quarantine
            | Wish::Maintain
            | Wish::Reject
            | Wish::Retire
            | Wish::ReplaceParts
            | Wish::PowerOff
            | Wish::PowerCycle
            | Wish::Reinstall
    )
}

/// The facts of a node that decide whether an action is allowed.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext {
    pub state: NodeState,
    /// An earlier requested action, not carried out yet.
    pub pending: Option<Wish>,
    pub claimed: bool,
    pub releasing: bool,
    pub protected: bool,
}

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocker {
    Pending,
    State,
    NotClaimed,
    Releasing,
    Protected,
}

/// Returns the cause of a refusal; `None` for an allowed action.
pub fn find_blocker(node: RequestContext, wish: Wish) -> Option<Blocker> {
    // A pending inspection of a node in service blocks no other action. A pending sweep blocks the
    // actions that leave the node in service: the sweep's result would have no effect, and the loads
    // would run beside jobs, after the node's return to the scheduler.
    let looks = [Wish::Inspect, Wish::CheckDrift, Wish::Sweep];
    let serves_on = looks.contains(&wish) || wish == Wish::RotateBmc;
    let gives_way =
        |look: &Wish| node.pending == Some(*look) && !(*look == Wish::Sweep && serves_on);
    let looked_at = node.state == NodeState::InService && looks.iter().any(gives_way);
    // A protected node refuses every action that powers, drains or erases.
    let harmless = matches!(
        wish,
        Wish::Accept
            | Wish::Adopt
            | Wish::Reject
            | Wish::Undrain
            | Wish::Resume
            | Wish::Retry
            | Wish::Recover
            | Wish::Reinstate
            | Wish::CheckDrift
            | Wish::Sweep
            | Wish::RotateBmc
    ) && !(wish == Wish::Recover && node.state == NodeState::InService);
    if node.pending.is_some() && !looked_at {
        return Some(Blocker::Pending);
    }
    if !wish_allowed(node.state, wish) {
        return Some(Blocker::State);
    }
    if matches!(wish, Wish::Converge | Wish::Reinstall) && !node.claimed {
        return Some(Blocker::NotClaimed);
    }
    if node.releasing && wish != Wish::Retry {
        return Some(Blocker::Releasing);
    }
    (node.protected && !harmless).then_some(Blocker::Protected)
}
