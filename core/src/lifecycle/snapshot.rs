//! The input of a decision: a node read from the database in a single transaction.

use jiff::Timestamp;

use super::state::{Action, Purpose, State};
use super::steps::Step;
use crate::claims::ClaimState;
use crate::clusters::DrainedBy;
use crate::facts::Facts;
use crate::gates::{GateResult, Suite};
use crate::profiles::HardwareProfile;
use crate::recovery::{Cause, Hold, Recovery, RecoveryPolicy};
use crate::rollout::Refusal;
use crate::stacks::ConvergeReport;
use crate::wire::node::Failure;

/// A node, with everything its state needs for a decision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub name: String,
    pub state: State,
    pub entered_at: Timestamp,
    pub purpose: Option<Purpose>,
    pub failed_phase: Option<State>,
    pub reason: Option<String>,
    pub action: Option<Action>,
    pub action_reason: Option<String>,
    pub claim: Option<ClaimState>,
    /// Until this time a release can be undone, and no disk is erased.
    pub undo_until: Option<Timestamp>,
    pub protected: bool,
    /// The claim is on hold: automation must not change the node's software.
    pub held: bool,
    /// The disks may hold user data: no wipe was verified since the last use.
    pub unsanitised: bool,
    /// The origin of the data, if a deleted record of the machine has told. Loaded only for an
    /// inspected node.
    pub data_left: Option<String>,
    /// The time when a maintenance ends automatically.
    pub until: Option<Timestamp>,
    /// A person asked to stop the node's current operation.
    pub stop: bool,
    /// Sentences describing each mismatch between the parts replaced by a person and the parts
    /// found since.
    pub disputed_parts: Vec<String>,
    /// The ladder ended at the rung `rma`: parts go back to their manufacturer. Loaded only for a
    /// quarantined node.
    pub returns_to_maker: bool,
    /// Listed in the scheduler's configuration.
    pub in_cluster: bool,
    /// The live image runs and its host key is pinned.
    pub live: bool,
    /// An installed OS is known by its host key.
    pub installed: bool,
    /// The node was seen off, and no start was seen since.
    pub off: bool,
    /// The person pressing the power button of a node without a BMC.
    pub power_person: Option<String>,
    pub power: PowerShare,
    /// The stack sets firmware or BIOS settings, and the BMC can report the values.
    pub sets_firmware: bool,
    /// The machine must be inspected before the image is written. A network profile selects cards by
    /// their links now, and the links of the last inspection may be months old. The live image never
    /// inspected an adopted machine, so no permit can name the disk. Loaded only if relevant for the
    /// decision.
    pub needs_inventory: bool,
    /// Steps of this stay in the state.
    pub steps: Vec<StepView>,
    pub profile: Option<HardwareProfile>,
    /// Facts from this stay's inventory.
    pub facts: Option<Facts>,
    /// Report of the latest converge in this stay.
    pub converged: Option<ConvergeReport>,
    pub suite: Option<Suite>,
    /// Results of this stay's gate steps.
    pub gates: Vec<GateResult>,
    pub gates_after_reboot: Vec<GateResult>,
    /// The scheduler's state, if the node is in service but takes no jobs.
    pub scheduler: Option<SchedulerOut>,
    /// The pool's sweep for nodes in service, and its results in this stay.
    pub sweep: Option<Suite>,
    pub swept: Vec<GateResult>,
    /// The recovery under way.
    pub recovery: Option<Recovery>,
    /// The recovery policy of the pool.
    pub policy: Option<RecoveryPolicy>,
    /// The reason why no further rung may be tried now. Loaded only if relevant for the decision.
    pub hold: Option<Hold>,
    /// The action required by a run of the pool's pairs.
    pub pairing: Option<Pairing>,
    /// For a sweep, the scheduler was asked to start no jobs on the node, and has not been asked
    /// since to use the node again.
    pub held_back: bool,
    /// Whether the scheduler may now be asked to hold the node. Loaded only if relevant for the
    /// decision.
    pub room: Room,
    /// A rollout changes the node together with other nodes, and has not started the changes. Loaded
    /// only if relevant for the decision.
    pub waits_for_unit: bool,
    /// The obstacle that keeps the node in service. Loaded only if relevant for the decision.
    pub no_slot: Option<NoSlot>,
}

/// The reason why no slot of the disruption budget can be taken now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSlot {
    /// The budget is exhausted.
    Full(Refusal),
    /// The declaration of the pool or site is being changed.
    Changing,
}

/// The action required of a node by a run of pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// The scheduler must start no new jobs on the node.
    Hold,
    /// The node measures with another node, as the requesting end.
    Measure,
    /// No action until the described condition is over.
    Waits(String),
    /// The node failed with known-good partners, so the fault is in this node.
    Faulty(Cause),
    /// The scheduler must use the node again; not attempted before the given time.
    GiveBack(Timestamp),
    /// The scheduler uses the node again.
    Back,
}

/// The pool's spare capacity for a sweep without jobs on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    #[default]
    Enough,
    /// Other nodes are being swept.
    Later,
    /// Too many nodes of the pool are out, for any reason.
    Nothing,
}

/// A node that takes no jobs, according to its scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerOut {
    /// The state in the scheduler's words: `drained`, `down`.
    pub state: String,
    /// The owner of the drain, read from the reason.
    pub by: DrainedBy,
    /// The reason in the scheduler's words, for display.
    pub reason: Option<String>,
    /// The state was seen twice since the node entered service. A single observation may be older
    /// than the entry.
    pub steady: bool,
}

impl SchedulerOut {
    /// Builds the view of a node out of service; the reason names the owner of the drain.
    pub fn new(state: String, reason: Option<String>, steady: bool) -> Self {
        Self {
            by: DrainedBy::read(reason.as_deref()),
            state,
            reason,
            steady,
        }
    }

    /// Returns the reason of a drain by a person or another program.
    pub fn others_reason(&self) -> Option<&str> {
        match self.by {
            DrainedBy::Others => self.reason.as_deref(),
            DrainedBy::Muster(_)
            | DrainedBy::HealthCheck(_)
            | DrainedBy::Scheduler
            | DrainedBy::Unknown => None,
        }
    }
}

/// The rack's power budget from the view of this node, in watts.
#[derive(Clone, Debug, Default)]
pub struct PowerShare {
    pub rack: Option<String>,
    /// The budget in watts; `None` if the rack declares no budget.
    pub budget_w: Option<u32>,
    /// Watts reserved by the rack's other nodes.
    pub committed_w: u32,
    /// Whether this node already has a reservation.
    pub reserved: bool,
}

/// A step of this stay in the state.
#[derive(Clone, Debug)]
pub struct StepView {
    pub step: Step,
    pub round: i32,
    /// The step belongs to the node's current operation, not to an earlier operation of the same
    /// stay.
    pub current: bool,
    pub status: StepStatus,
}

/// The progress of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepStatus {
    /// Waits for an agent, or for the start time.
    Queued,
    Running {
        /// The condition awaited by the agent, in the agent's words.
        waiting_for: Option<String>,
    },
    /// The step's worker lost contact. The outcome is unknown until the next agent has observed the
    /// node.
    Lost,
    Succeeded,
    Failed {
        at: Timestamp,
        failure: Failure,
    },
    Cancelled,
}

impl Snapshot {
    /// Returns a step of this stay, if started.
    pub fn step(&self, step: Step) -> Option<&StepView> {
        self.steps.iter().find(|view| view.step == step)
    }

    /// Returns whether a step of this stay succeeded.
    pub fn done(&self, step: Step) -> bool {
        self.step(step)
            .is_some_and(|view| view.status == StepStatus::Succeeded)
    }

    /// Returns the step that is queued, running or lost.
    pub fn active(&self) -> Option<&StepView> {
        let open = |view: &&StepView| {
            matches!(
                view.status,
                StepStatus::Queued | StepStatus::Running { .. } | StepStatus::Lost
            )
        };
        self.steps.iter().find(open)
    }

    /// Returns a copy without the stop request, for work that must continue after a stop.
    pub fn unstoppable(&self) -> Self {
        Self {
            stop: false,
            ..self.clone()
        }
    }

    /// Returns whether the node is claimed and has the claim's system on its disk.
    pub fn holds_its_system(&self) -> bool {
        self.claim == Some(ClaimState::Bound) && self.installed
    }

    /// Returns whether the claim is being released, by deletion or by a requested action.
    pub fn releasing(&self) -> bool {
        self.claim == Some(ClaimState::Releasing)
    }
}
