//! What is measured next: first a few rounds of everybody, then each end that failed, or had no answer, with a partner that is known good. A function
//! of the trials alone, so that whoever continues a run after a crash continues the same one.

use super::rounds::{Pair, round, rounds};
use super::tally::{Tally, Trial};

/// Rounds of a survey that leaves no edge out: eight nodes'.
const WHOLE: usize = 7;

/// How far a run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rounds in which everybody is measured; more while they left nobody known good.
    pub survey: usize,
    /// Known-good partners that an end must fail with before it is blamed.
    pub confirm: usize,
    /// Trials without an answer after which an end that has none yet is left alone; those of the survey are not counted.
    pub errors: usize,
    /// Rounds of all kinds together; what is not told apart by then is unknown.
    pub rounds: usize,
}

impl Limits {
    /// Of a run over so many ends: few enough are all measured with each other. Of more, each run measures some edges, and another run others.
    pub fn of(ends: usize) -> Self {
        let all = rounds(ends);
        let default = Self::default();
        Self {
            survey: if all <= WHOLE {
                all.max(1)
            } else {
                default.survey
            },
            ..default
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            survey: 3,
            confirm: 2,
            errors: 3,
            rounds: 16,
        }
    }
}

/// What a run does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// These pairs at the same time: no end is in two of them.
    Measure(Vec<Pair>),
    /// No trial would tell more, or the run has gone as far as it may.
    Done,
}

/// What to measure after these rounds.
pub fn next(ends: usize, limits: &Limits, done: &[Vec<Trial>]) -> Next {
    if ends < 2 || done.len() >= limits.rounds {
        return Next::Done;
    }
    let surveyed = surveyed(ends, limits, done);
    if done.len() < surveyed {
        return Next::Measure(round(ends, done.len()));
    }
    let tally = Tally::of(ends, done.iter().flatten());
    let late = Tally::of(ends, done[surveyed..].iter().flatten());
    match partners(&tally, &late, limits) {
        pairs if pairs.is_empty() => Next::Done,
        pairs => Next::Measure(pairs),
    }
}

/// How many of the first rounds are the survey's. While failures are all there is, the next round may have the two good ends that tell them apart.
fn surveyed(ends: usize, limits: &Limits, done: &[Vec<Trial>]) -> usize {
    let all = rounds(ends);
    let mut survey = limits.survey.clamp(1, all);
    while survey < all && survey <= done.len() {
        let tally = Tally::of(ends, done[..survey].iter().flatten());
        if tally.anybody_good() || !tally.anybody_failed() {
            break;
        }
        survey += 1;
    }
    survey
}

/// A known-good partner for each end that needs one, as far as they go round; the first such end always gets one if there is any.
fn partners(tally: &Tally, late: &Tally, limits: &Limits) -> Vec<Pair> {
    let mut busy = vec![false; tally.ends()];
    let mut pairs = Vec::new();
    for end in 0..tally.ends() {
        let asked_enough = tally.failed_with_good(end).len() >= limits.confirm
            || late.errors[end] >= limits.errors;
        if tally.good(end) || asked_enough {
            continue;
        }
        let free = |partner: &usize| {
            !busy[*partner] && tally.good(*partner) && !tally.decided(end, *partner)
        };
        // Who errs with others may be the one that has no tool.
        let quiet = |partner: &usize| {
            (
                tally.edge_errors(end, *partner),
                late.errors[*partner],
                *partner,
            )
        };
        let Some(partner) = (0..tally.ends()).filter(free).min_by_key(quiet) else {
            continue;
        };
        (busy[end], busy[partner]) = (true, true);
        pairs.push(Pair::of(end, partner));
    }
    pairs.sort_unstable();
    pairs
}
