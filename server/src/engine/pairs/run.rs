//! A run with nodes and measurements, as read by a step of the run.

use jiff::Timestamp;
use muster_core::fabric::{Pair, Trial};

use crate::db::pairs::ends::EndRow;
use crate::db::pairs::runs::OpenRun;
use crate::db::pairs::trials::TrialRow;

/// The longest reason of a pair, and the longest message of a run's operation, in characters.
const LONGEST_TEXT: usize = 600;

/// A run of pairs.
pub(super) struct Run<'row> {
    pub row: &'row OpenRun,
    pub ends: Vec<EndRow>,
    pub trials: Vec<TrialRow>,
    pub now: Timestamp,
}

impl Run<'_> {
    /// The measured nodes, by position.
    pub(super) fn measured(&self) -> Vec<&EndRow> {
        self.ends
            .iter()
            .filter(|end| end.position.is_some())
            .collect()
    }

    /// The names of the measured nodes, by position.
    pub(super) fn names(&self) -> Vec<String> {
        self.measured().iter().map(|end| end.name.clone()).collect()
    }

    pub(super) fn end(&self, position: i32) -> Option<&EndRow> {
        self.ends.iter().find(|end| end.position == Some(position))
    }

    /// The settled rounds, in the form of `core/fabric`.
    pub(super) fn rounds(&self) -> Vec<Vec<Trial>> {
        let mut rounds: Vec<Vec<Trial>> = Vec::new();
        for trial in &self.trials {
            let Some(verdict) = trial.verdict else {
                continue;
            };
            let at = usize::try_from(trial.round).unwrap_or(0);
            rounds.resize(rounds.len().max(at + 1), Vec::new());
            rounds[at].push(Trial {
                pair: pair_of(trial),
                verdict,
            });
        }
        rounds
    }
}

pub(super) fn pair_of(trial: &TrialRow) -> Pair {
    let place = |at: i32| usize::try_from(at).unwrap_or(0);
    Pair::of(place(trial.a), place(trial.b))
}

pub(super) fn cut(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).collect()
}
