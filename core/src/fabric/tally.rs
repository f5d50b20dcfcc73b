//! Trials, counted by end and edge. An end that passed with anybody is known good: a pass goes through both ends.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::rounds::Pair;
use crate::gates::Verdict;

/// One measured pair, both ways: `fail` when either way missed, else `error` when either way has no answer, else `pass`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub pair: Pair,
    pub verdict: Verdict,
}

/// What is known of every end.
pub(super) struct Tally {
    /// By end: with whom it passed, and with whom it failed.
    pub(super) passed: Vec<BTreeSet<usize>>,
    pub(super) failed: Vec<BTreeSet<usize>>,
    /// By end: trials without an answer.
    pub(super) errors: Vec<usize>,
    edge_errors: BTreeMap<Pair, usize>,
}

impl Tally {
    /// Counts trials. Those of ends that there are not are left out; of a pair that was measured twice the failure counts.
    pub(super) fn of<'a>(ends: usize, trials: impl Iterator<Item = &'a Trial>) -> Self {
        let mut tally = Self {
            passed: vec![BTreeSet::new(); ends],
            failed: vec![BTreeSet::new(); ends],
            errors: vec![0; ends],
            edge_errors: BTreeMap::new(),
        };
        for Trial { pair, verdict } in
            trials.filter(|trial| trial.pair.b < ends && trial.pair.a != trial.pair.b)
        {
            let (a, b) = (pair.a, pair.b);
            match verdict {
                Verdict::Pass if !tally.failed[a].contains(&b) => {
                    tally.passed[a].insert(b);
                    tally.passed[b].insert(a);
                }
                Verdict::Pass => {}
                Verdict::Fail => {
                    tally.failed[a].insert(b);
                    tally.failed[b].insert(a);
                    tally.passed[a].remove(&b);
                    tally.passed[b].remove(&a);
                }
                // Nothing was measured, for whatever reason.
                Verdict::Error | Verdict::Skipped => {
                    tally.errors[a] += 1;
                    tally.errors[b] += 1;
                    *tally.edge_errors.entry(*pair).or_default() += 1;
                }
            }
        }
        tally
    }

    pub(super) fn ends(&self) -> usize {
        self.passed.len()
    }

    pub(super) fn good(&self, end: usize) -> bool {
        !self.passed[end].is_empty()
    }

    pub(super) fn anybody_good(&self) -> bool {
        self.passed.iter().any(|partners| !partners.is_empty())
    }

    pub(super) fn anybody_failed(&self) -> bool {
        self.failed.iter().any(|partners| !partners.is_empty())
    }

    /// Known-good partners that an end failed with.
    pub(super) fn failed_with_good(&self, end: usize) -> Vec<usize> {
        self.failed[end]
            .iter()
            .copied()
            .filter(|partner| self.good(*partner))
            .collect()
    }

    /// Whether a pair was measured, with whatever result.
    pub(super) fn decided(&self, one: usize, other: usize) -> bool {
        self.passed[one].contains(&other) || self.failed[one].contains(&other)
    }

    pub(super) fn edge_errors(&self, one: usize, other: usize) -> usize {
        self.edge_errors
            .get(&Pair::of(one, other))
            .copied()
            .unwrap_or(0)
    }
}
