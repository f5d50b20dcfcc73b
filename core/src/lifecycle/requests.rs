//! Rules of requested actions: mandatory reasons, and blockers.

use super::state::{Action, State as NodeState};
use super::table::action_allowed;

/// Returns whether the action must carry a reason, because the next person on call needs the reason.
pub fn needs_reason(action: Action) -> bool {
    matches!(
        action,
        Action::Quarantine
            | Action::Maintain
            | Action::Reject
            | Action::Retire
            | Action::ReplaceParts
            | Action::PowerOff
            | Action::PowerCycle
            | Action::Reinstall
    )
}

/// Returns whether the action may exceed the disruption budget by a person's override. A reinstall
/// may not, because a second person may have to approve the erasure.
pub fn may_override(action: Action) -> bool {
    matches!(
        action,
        Action::Drain | Action::Maintain | Action::Quarantine | Action::Recover | Action::Converge
    )
}

/// The facts of a node that decide whether an action is allowed.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext {
    pub state: NodeState,
    /// The state that failed, of a failed node.
    pub failed_phase: Option<NodeState>,
    /// An earlier requested action, not carried out yet.
    pub pending: Option<Action>,
    /// The pending action waits for a slot of the disruption budget, and has begun no work.
    pub waits_for_slot: bool,
    /// The request overrides the disruption budget.
    pub overrides: bool,
    pub claimed: bool,
    pub releasing: bool,
    pub protected: bool,
}

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocker {
    Pending,
    State,
    /// The node failed in another phase than the action undoes.
    OtherPhase,
    NotClaimed,
    Releasing,
    Protected,
}

/// Returns the cause of a refusal; `None` for an allowed action.
pub fn find_blocker(node: RequestContext, action: Action) -> Option<Blocker> {
    // A pending inspection of a node in service blocks no other action. A pending sweep blocks the
    // actions that leave the node in service: the sweep's result would have no effect, and the loads
    // would run beside jobs, after the node's return to the scheduler.
    let looks = [Action::Inspect, Action::CheckDrift, Action::Sweep];
    let serves_on = looks.contains(&action) || action == Action::RotateBmc;
    let gives_way =
        |look: &Action| node.pending == Some(*look) && !(*look == Action::Sweep && serves_on);
    let looked_at = node.state == NodeState::InService && looks.iter().any(gives_way);
    // A protected node refuses every action that powers, drains or erases.
    let harmless = matches!(
        action,
        Action::Accept
            | Action::Adopt
            | Action::Reject
            | Action::Undrain
            | Action::Resume
            | Action::Retry
            | Action::Recover
            | Action::Reinstate
            | Action::CheckDrift
            | Action::Sweep
            | Action::RotateBmc
    ) && !(action == Action::Recover && node.state == NodeState::InService);
    let leaves = may_override(action) || action == Action::Reinstall;
    let takes_over =
        node.waits_for_slot && leaves && (node.pending != Some(action) || node.overrides);
    if node.pending.is_some() && !looked_at && !takes_over {
        return Some(Blocker::Pending);
    }
    if !action_allowed(node.state, action) {
        return Some(Blocker::State);
    }
    let failed_drain = node.failed_phase == Some(NodeState::Draining);
    if action == Action::Undrain && node.state == NodeState::Failed && !failed_drain {
        return Some(Blocker::OtherPhase);
    }
    if matches!(action, Action::Converge | Action::Reinstall) && !node.claimed {
        return Some(Blocker::NotClaimed);
    }
    if node.releasing && action != Action::Retry {
        return Some(Blocker::Releasing);
    }
    (node.protected && !harmless).then_some(Blocker::Protected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waiting_for_a_slot_gives_way_to_another_act_or_an_override() {
        let waiting = RequestContext {
            state: NodeState::InService,
            failed_phase: None,
            pending: Some(Action::Drain),
            waits_for_slot: true,
            overrides: false,
            claimed: true,
            releasing: false,
            protected: false,
        };
        let pending = Some(Blocker::Pending);
        assert_eq!(find_blocker(waiting, Action::Drain), pending);
        assert_eq!(find_blocker(waiting, Action::Quarantine), None);
        assert_eq!(find_blocker(waiting, Action::Sweep), pending);
        let overrides = RequestContext {
            overrides: true,
            ..waiting
        };
        assert_eq!(find_blocker(overrides, Action::Drain), None);
        let begun = RequestContext {
            waits_for_slot: false,
            ..overrides
        };
        assert_eq!(find_blocker(begun, Action::Drain), pending);
        assert_eq!(find_blocker(begun, Action::Quarantine), pending);
    }

    #[test]
    fn only_a_failed_drain_is_undrained() {
        let failed = |phase| RequestContext {
            state: NodeState::Failed,
            failed_phase: Some(phase),
            pending: None,
            waits_for_slot: false,
            overrides: false,
            claimed: true,
            releasing: false,
            protected: true,
        };
        for phase in NodeState::ALL {
            let blocker = find_blocker(failed(*phase), Action::Undrain);
            let expected = (*phase != NodeState::Draining).then_some(Blocker::OtherPhase);
            assert_eq!(blocker, expected, "{phase}");
        }
    }
}
