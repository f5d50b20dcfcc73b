//! State shared by the gates of a run: answers of tools with the same call, samples under the load
//! of others, and places in the kernel's
//! log, stored after the verdicts.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use muster_core::gates::{Gate, Stage};

use super::cursor::Kept;
use super::during::Looks;
use crate::tool::Finished;

/// Older answers no longer describe the present state.
const YOUNG: Duration = Duration::from_secs(30);

/// The shared state of a run of gates.
#[derive(Default)]
pub(crate) struct Shared {
    answers: RefCell<Vec<Told>>,
    look: RefCell<Option<(Stage, Kept)>>,
    under_load: RefCell<BTreeMap<String, Looks>>,
    /// Gates with effects whose tool was started.
    loads: RefCell<BTreeSet<String>>,
    /// Whether a gate has reported a node without a GPU.
    no_gpu: Cell<bool>,
}

/// The answer of a tool.
struct Told {
    at: Instant,
    stage: Stage,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    /// The gate of the first call.
    by: String,
    answer: Rc<Finished>,
}

impl Shared {
    /// Notes that a gate has reported a node without a GPU.
    pub(super) fn report_no_gpu(&self) {
        self.no_gpu.set(true);
    }

    pub(super) fn has_reported_no_gpu(&self) -> bool {
        self.no_gpu.get()
    }

    /// Notes that the tool of a gate has loaded the machine, however the tool ended.
    pub(super) fn note_load(&self, gate: &Gate) {
        if !gate.effects.is_empty() {
            self.loads.borrow_mut().insert(gate.id.clone());
        }
    }

    /// Whether a gate only looks at what a load has done: a gate of stage `soak` without effects, after
    /// a load. A gate measured during loads needs one of its loads.
    pub(super) fn looks_after(&self, gate: &Gate) -> bool {
        let loads = self.loads.borrow();
        let has_loads = match &gate.during {
            Some(during) => during.gates.iter().any(|id| loads.contains(id)),
            None => !loads.is_empty(),
        };
        gate.stage == Stage::Soak && gate.effects.is_empty() && has_loads
    }

    /// Returns a recent answer to the same call within this stage, with the id of the calling gate.
    pub(super) fn find_answer(
        &self,
        gate: &Gate,
        argv: &[String],
    ) -> Option<(String, Rc<Finished>)> {
        if !shares(gate) {
            return None;
        }
        let answers = self.answers.borrow();
        let same = |told: &&Told| {
            told.stage == gate.stage
                && told.argv == argv
                && told.env == gate.env
                && told.at.elapsed() < YOUNG
        };
        answers
            .iter()
            .rfind(same)
            .map(|told| (told.by.clone(), Rc::clone(&told.answer)))
    }

    /// Keeps an answer for later gates of the stage. Truncated output and the output of a killed
    /// tool are dropped.
    pub(super) fn keep_answer(&self, gate: &Gate, argv: Vec<String>, answer: &Rc<Finished>) {
        if shares(gate) && answer.status.code().is_some() && !answer.truncated && !answer.open {
            let (stage, env, by) = (gate.stage, gate.env.clone(), gate.id.clone());
            let told = Told {
                at: Instant::now(),
                stage,
                argv,
                env,
                by,
                answer: Rc::clone(answer),
            };
            self.answers.borrow_mut().push(told);
        }
    }

    /// Drops all answers: a gate changed the machine, or could not parse an answer.
    pub(super) fn forget(&self) {
        self.answers.borrow_mut().clear();
    }

    /// Keeps a place in the kernel's log. Within a stage, the first place counts, because the other
    /// gates have not judged later records. A
    /// later stage judges all of these records again.
    pub(super) fn looked(&self, stage: Stage, kept: Kept) {
        let mut look = self.look.borrow_mut();
        if look.as_ref().is_none_or(|(last, _)| *last != stage) {
            *look = Some((stage, kept));
        }
    }

    /// Adds the samples of a gate during the load of another gate.
    pub(super) fn add_looks(&self, gate: &str, looks: Looks) {
        self.under_load
            .borrow_mut()
            .entry(gate.to_owned())
            .or_default()
            .join(looks);
    }

    /// Returns all samples of a gate under load.
    pub(super) fn take_looks_of(&self, gate: &str) -> Looks {
        self.under_load
            .borrow_mut()
            .remove(gate)
            .unwrap_or_default()
    }

    /// Returns the place to store after the verdicts are delivered.
    pub(crate) fn looks(&self) -> Vec<Kept> {
        self.look
            .borrow()
            .iter()
            .map(|(_, kept)| kept.clone())
            .collect()
    }
}

/// Returns whether a gate may use the answer of another gate: the gate does not change the machine,
/// and its answer is the output of the tool.
fn shares(gate: &Gate) -> bool {
    gate.effects.is_empty()
        && gate.output.is_none()
        && gate.keep.is_empty()
        && gate.peer.is_none()
        && gate.window_s.is_none()
}
