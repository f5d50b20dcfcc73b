//! Legal moves as data: the moves allowed in `advance`, the actions allowed in requests, and the
//! diagram in the docs.

use super::state::{Action, State};

/// Returns whether a node may move from one state to another.
pub fn legal(from: State, to: State) -> bool {
    targets(from).contains(&to)
}

/// Returns every state a node may move to from `from`.
pub fn targets(from: State) -> &'static [State] {
    use State::{
        Admitting, Available, Discovered, Draining, Failed, Imaging, InService, Inspecting,
        Installing, Maintenance, Quarantined, Repairing, Retired, Validating, Wiping,
    };
    match from {
        Discovered => &[Inspecting, InService, Retired],
        Inspecting => &[Available, Quarantined, Failed, Wiping],
        Available => &[
            Inspecting,
            Imaging,
            Maintenance,
            Retired,
            Quarantined,
            Wiping,
        ],
        Imaging => &[Installing, Failed, Wiping, Quarantined],
        Installing => &[Validating, Failed, Wiping, Quarantined],
        Validating => &[Admitting, Repairing, Failed, Wiping, Quarantined],
        Admitting => &[InService, Failed, Wiping, Quarantined],
        InService => &[Draining],
        Draining => &[
            InService,
            Wiping,
            Maintenance,
            Repairing,
            Installing,
            Imaging,
            Validating,
            Quarantined,
            Failed,
        ],
        Repairing => &[Validating, Imaging, Quarantined, Wiping],
        Quarantined => &[Validating, Installing, Imaging, Inspecting, Wiping, Retired],
        Failed => &[
            Inspecting,
            Imaging,
            Installing,
            Validating,
            Admitting,
            Draining,
            InService,
            Wiping,
            Quarantined,
            Maintenance,
        ],
        Wiping => &[Inspecting, Validating, Quarantined, Failed],
        Maintenance => &[
            Inspecting,
            Imaging,
            Installing,
            Validating,
            Wiping,
            Retired,
            Quarantined,
        ],
        Retired => &[Inspecting],
    }
}

/// Returns whether an action can be requested in this state. An early refusal is better than a
/// request that no state handles.
pub fn action_allowed(state: State, action: Action) -> bool {
    states_for(action).contains(&state)
}

/// Returns the states in which an action can be requested.
pub fn states_for(action: Action) -> &'static [State] {
    use State::{
        Admitting, Available, Discovered, Draining, Failed, Imaging, InService, Inspecting,
        Installing, Maintenance, Quarantined, Repairing, Retired, Validating, Wiping,
    };
    match action {
        Action::Accept | Action::Adopt | Action::Reject => &[Discovered],
        Action::Inspect => &[Available, InService],
        Action::Release => &[
            Available,
            Imaging,
            Installing,
            Validating,
            Admitting,
            InService,
            Draining,
            Repairing,
            Quarantined,
            Failed,
            Maintenance,
            Inspecting,
            Wiping,
        ],
        Action::Retry => &[Failed],
        Action::Quarantine => &[
            Inspecting,
            Available,
            Imaging,
            Installing,
            Validating,
            Admitting,
            InService,
            Draining,
            Repairing,
            Failed,
            Maintenance,
        ],
        Action::Recover => &[InService, Quarantined],
        Action::Wipe => &[Quarantined],
        Action::Drain | Action::CheckDrift | Action::Sweep => &[InService],
        // A failed node is undrained if the drain failed.
        Action::Undrain => &[Draining, Failed],
        Action::Maintain => &[Available, InService, Draining, Failed, Maintenance],
        Action::Resume => &[Maintenance],
        Action::Retire => &[Available, Quarantined, Maintenance],
        Action::Reinstate => &[Retired],
        Action::ReplaceParts => &[Available, Quarantined, Failed, Maintenance],
        // States without user jobs. A claimable node stays off, because a claim powers the node on.
        Action::PowerOn | Action::PowerCycle => &[Quarantined, Maintenance],
        Action::PowerOff | Action::RunGates => &[Available, Quarantined, Maintenance],
        // The gates run afterwards, so a node in quarantine does not pass them by.
        Action::Converge | Action::Reinstall => &[InService, Failed, Maintenance, Quarantined],
        // States without other traffic to the BMC.
        Action::RotateBmc => &[Available, InService, Quarantined, Maintenance],
    }
}
