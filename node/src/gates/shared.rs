//! What the gates of one run have in common: answers of tools that several ask the same, what was seen while others loaded the machine, and the looks
//! whose places are kept once the verdicts are told.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use muster_core::gates::{Gate, Stage};

use super::cursor::Kept;
use super::during::Looks;
use crate::tool::Finished;

/// An answer that is older says too little of now.
const YOUNG: Duration = Duration::from_secs(30);

/// Of one run of gates.
#[derive(Default)]
pub(crate) struct Shared {
    answers: RefCell<Vec<Told>>,
    look: RefCell<Option<(Stage, Kept)>>,
    under_load: RefCell<BTreeMap<String, Looks>>,
}

/// What a tool said.
struct Told {
    at: Instant,
    stage: Stage,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    /// The gate that asked first.
    by: String,
    answer: Rc<Finished>,
}

impl Shared {
    /// The answer to the same call, where another gate of this stage made the call just now, and the id of that gate.
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

    /// Keeps an answer for later gates of the stage. Truncated output and the output of a killed tool are dropped.
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

    /// Nothing that was said before counts any more: a gate changed the machine, or read nothing in what it was told.
    pub(super) fn forget(&self) {
        self.answers.borrow_mut().clear();
    }

    /// A look at the kernel's log, whose place is to be kept. Of those of one stage it is the first one's: not every gate has judged what came behind it. A
    /// later stage judges all of it once more.
    pub(super) fn looked(&self, stage: Stage, kept: Kept) {
        let mut look = self.look.borrow_mut();
        if look.as_ref().is_none_or(|(last, _)| *last != stage) {
            *look = Some((stage, kept));
        }
    }

    /// Adds the looks of a gate during the load of another gate.
    pub(super) fn add_looks(&self, gate: &str, looks: Looks) {
        self.under_load
            .borrow_mut()
            .entry(gate.to_owned())
            .or_default()
            .join(looks);
    }

    /// All that a gate saw so.
    pub(super) fn take_looks_of(&self, gate: &str) -> Looks {
        self.under_load
            .borrow_mut()
            .remove(gate)
            .unwrap_or_default()
    }

    /// The place to keep, once the verdicts that came of it are told.
    pub(crate) fn looks(&self) -> Vec<Kept> {
        self.look
            .borrow()
            .iter()
            .map(|(_, kept)| kept.clone())
            .collect()
    }
}

/// Whether it may be answered by what another was told: it does nothing to the machine, and its answer is what the tool prints.
fn shares(gate: &Gate) -> bool {
    gate.effects.is_empty()
        && gate.output.is_none()
        && gate.keep.is_empty()
        && gate.peer.is_none()
        && gate.window_s.is_none()
}
