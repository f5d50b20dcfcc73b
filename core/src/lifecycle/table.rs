//! Legal moves as data: what `advance` may persist, what a wish may ask for, and the picture in the docs.

use super::state::{State, Wish};

/// Whether a node may move from one state to another.
pub fn legal(from: State, to: State) -> bool {
    targets(from).contains(&to)
}

/// Every state a node may move to from `from`.
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
        Quarantined => &[Validating, Inspecting, Wiping, Retired],
        Failed => &[
            Inspecting,
            Imaging,
            Installing,
            Validating,
            Admitting,
            Draining,
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

/// Whether a wish can be asked of a node in this state; refusing early is kinder than a wish that nobody takes.
pub fn wish_allowed(state: State, wish: Wish) -> bool {
    states_for(wish).contains(&state)
}

/// The states in which a wish can be asked.
pub fn states_for(wish: Wish) -> &'static [State] {
    use State::{
        Admitting, Available, Discovered, Draining, Failed, Imaging, InService, Inspecting,
        Installing, Maintenance, Quarantined, Repairing, Retired, Validating, Wiping,
    };
    match wish {
        Wish::Accept | Wish::Adopt | Wish::Reject => &[Discovered],
        Wish::Inspect => &[Available, InService],
        Wish::Release => &[
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
        Wish::Retry => &[Failed],
        Wish::Quarantine => &[
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
        Wish::Recover => &[InService, Quarantined],
        Wish::Wipe => &[Quarantined],
        Wish::Drain | Wish::CheckDrift | Wish::Sweep => &[InService],
        Wish::Undrain => &[Draining],
        Wish::Maintain => &[Available, InService, Draining, Failed, Maintenance],
        Wish::Resume => &[Maintenance],
        Wish::Retire => &[Available, Quarantined, Maintenance],
        Wish::Reinstate => &[Retired],
        Wish::ReplaceParts => &[Available, Quarantined, Failed, Maintenance],
        // Where nobody's work is lost. What can be claimed stays off: a claim powers it on.
        Wish::PowerOn | Wish::PowerCycle => &[Quarantined, Maintenance],
        Wish::PowerOff | Wish::RunGates => &[Available, Quarantined, Maintenance],
        Wish::Converge | Wish::Reinstall => &[InService, Failed, Maintenance],
        // Where nothing else talks to its BMC.
        Wish::RotateBmc => &[Available, InService, Quarantined, Maintenance],
    }
}
