//! What a decision is made from: one node as the database has it, in one transaction.

use jiff::Timestamp;

use super::state::{Purpose, State, Wish};
use super::steps::Step;
use crate::claims::ClaimState;
use crate::clusters::{LOST_SIGHT, OUR_REASON};
use crate::facts::Facts;
use crate::gates::{GateResult, Suite};
use crate::profiles::HardwareProfile;
use crate::recovery::{Cause, Hold, Recovery, RecoveryPolicy};
use crate::stacks::ConvergeReport;
use crate::wire::node::Failure;

/// One node, and what its state needs to decide.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub name: String,
    pub state: State,
    pub entered_at: Timestamp,
    pub purpose: Option<Purpose>,
    pub failed_phase: Option<State>,
    pub reason: Option<String>,
    pub wish: Option<Wish>,
    pub wish_reason: Option<String>,
    pub claim: Option<ClaimState>,
    /// Until then a release can be undone: nothing is erased.
    pub undo_until: Option<Timestamp>,
    pub protected: bool,
    /// Nothing that happens by itself changes what it runs.
    pub held: bool,
    /// Its disks may hold somebody's data: no wipe was verified since.
    pub unsanitised: bool,
    /// When a maintenance ends by itself.
    pub until: Option<Timestamp>,
    /// Somebody asked to stop the operation it works on.
    pub stop: bool,
    /// What does not fit between the parts a person replaced and those that were seen since, as sentences.
    pub disputed_parts: Vec<String>,
    /// Listed in the scheduler's configuration.
    pub in_cluster: bool,
    /// The live image runs and its host key is pinned.
    pub live: bool,
    /// An installed OS is known by its host key.
    pub installed: bool,
    /// It was seen to be off, and nothing was seen to start it since.
    pub off: bool,
    /// Who presses the power button where there is no BMC.
    pub power_person: Option<String>,
    pub power: PowerShare,
    /// Its stack wants firmware or BIOS settings, and its BMC can be asked for them.
    pub sets_firmware: bool,
    /// Its pool names a network profile, whose interfaces are told by the machine's links. Looked for only when it decides.
    pub has_network_profile: bool,
    /// Steps of this stay.
    pub steps: Vec<StepView>,
    pub profile: Option<HardwareProfile>,
    /// Of this stay's inventory.
    pub facts: Option<Facts>,
    /// Of this stay's converge, the latest.
    pub converged: Option<ConvergeReport>,
    pub suite: Option<Suite>,
    /// Of this stay's gate steps.
    pub gates: Vec<GateResult>,
    pub gates_after_reboot: Vec<GateResult>,
    /// What its scheduler says, where it takes no jobs although it serves.
    pub scheduler: Option<SchedulerOut>,
    /// Of the pool, for nodes in service, and what it found in this stay.
    pub sweep: Option<Suite>,
    pub swept: Vec<GateResult>,
    /// What is tried on it, while something is.
    pub recovery: Option<Recovery>,
    /// What its pool asks to be tried.
    pub policy: Option<RecoveryPolicy>,
    /// Why nothing more may be tried now. Looked for only when it decides.
    pub hold: Option<Hold>,
    /// What a run of its pool's pairs wants of it.
    pub pairing: Option<Pairing>,
    /// Its scheduler was asked for a sweep to start no job on it, and was not asked since to use it again.
    pub held_back: bool,
    /// Whether its scheduler may be asked so now. Looked for only when it decides.
    pub room: Room,
}

/// What a run of pairs wants of one of its nodes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// No job is to start on it from now on.
    Hold,
    /// It is to measure with another node, and asks.
    Measure,
    /// Nothing, until this is over.
    Waits(String),
    /// It failed with known-good partners: it is its fault.
    Faulty(Cause),
    /// It serves again; not tried before this time.
    GiveBack(Timestamp),
    /// It does so.
    Back,
}

/// What its pool can spare for a sweep that nobody's job may run beside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    #[default]
    Enough,
    /// Others are swept.
    Later,
    /// Too many of its nodes are out, for whatever reason.
    Nothing,
}

/// A node that takes no jobs, as its scheduler says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerOut {
    /// As the scheduler calls it: `drained`, `down`.
    pub state: String,
    pub reason: Option<String>,
    /// It was seen so twice since the node serves: the first look may be older than that.
    pub steady: bool,
}

impl SchedulerOut {
    /// For what somebody else keeps it from jobs: a reason that is neither Muster's nor the scheduler's own for a node that it lost sight of.
    pub fn by_somebody_else(&self) -> Option<&str> {
        let reason = self.reason.as_deref()?;
        (!reason.starts_with(OUR_REASON) && !LOST_SIGHT.contains(&reason)).then_some(reason)
    }
}

/// The rack's power budget as this node meets it. Watts.
#[derive(Clone, Debug, Default)]
pub struct PowerShare {
    pub rack: Option<String>,
    /// `None`: the rack declares no budget.
    pub budget_w: Option<u32>,
    /// Reserved by the rack's other nodes.
    pub committed_w: u32,
    /// Reserved by this node already.
    pub reserved: bool,
}

/// A step of this stay.
#[derive(Clone, Debug)]
pub struct StepView {
    pub step: Step,
    pub round: i32,
    /// Of the operation the node works on now, not of an earlier one of the same stay.
    pub current: bool,
    pub status: StepStatus,
}

/// How far a step is.
#[derive(Clone, Debug, PartialEq)]
pub enum StepStatus {
    /// Waits for an agent, or for its time.
    Queued,
    Running {
        /// What the agent says it waits for.
        waiting_for: Option<String>,
    },
    /// Its worker was not heard of any more: how it ended is not known until the next one has looked.
    Lost,
    Succeeded,
    Failed {
        at: Timestamp,
        failure: Failure,
    },
    Cancelled,
}

impl Snapshot {
    /// A step of this stay, if it was started.
    pub fn step(&self, step: Step) -> Option<&StepView> {
        self.steps.iter().find(|view| view.step == step)
    }

    /// Whether a step of this stay succeeded.
    pub fn done(&self, step: Step) -> bool {
        self.step(step)
            .is_some_and(|view| view.status == StepStatus::Succeeded)
    }

    /// The step that is queued, running, or not known to have ended.
    pub fn active(&self) -> Option<&StepView> {
        let open = |view: &&StepView| {
            matches!(
                view.status,
                StepStatus::Queued | StepStatus::Running { .. } | StepStatus::Lost
            )
        };
        self.steps.iter().find(open)
    }

    /// The same node, for what goes on although somebody asked to stop.
    pub fn unstoppable(&self) -> Self {
        Self {
            stop: false,
            ..self.clone()
        }
    }

    /// Whether it is somebody's, with their system on its disk.
    pub fn holds_its_system(&self) -> bool {
        self.claim == Some(ClaimState::Bound) && self.installed
    }

    /// Whether the claim is being given up, by its deletion or by a wish.
    pub fn releasing(&self) -> bool {
        self.claim == Some(ClaimState::Releasing)
    }
}
