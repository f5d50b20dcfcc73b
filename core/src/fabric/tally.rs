//! Trials, counted by end and edge. An end with at least one pass is known good, because a pass
//! goes through both ends.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::rounds::Pair;
use crate::gates::Verdict;

/// One measured pair, in both directions: `fail` if either direction failed, else `error` if either
/// direction has no answer, else `pass`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub pair: Pair,
    pub verdict: Verdict,
}

/// The counts for every end.
pub(super) struct Tally {
    /// By end: the partners of passed pairs, and the partners of failed pairs.
    pub(super) passed: Vec<BTreeSet<usize>>,
    pub(super) failed: Vec<BTreeSet<usize>>,
    /// By end: number of trials without an answer.
    pub(super) errors: Vec<usize>,
    edge_errors: BTreeMap<Pair, usize>,
}

impl Tally {
    /// Counts trials. Trials of unknown ends are ignored. For a pair measured twice, a failure
    /// overrides a pass.
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
                // The trial has no measurement, for any reason.
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

    /// Returns the known-good partners with which an end failed.
    pub(super) fn failed_with_good(&self, end: usize) -> Vec<usize> {
        self.failed[end]
            .iter()
            .copied()
            .filter(|partner| self.good(*partner))
            .collect()
    }

    /// Returns whether a pair was measured with an answer, pass or fail.
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
