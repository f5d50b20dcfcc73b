//! Choice of the next measurements. First come a few survey rounds with all ends. Then each end
//! that failed or had no answer meets a known-good partner. The choice depends only on the trials,
//! so a run continued after a crash takes the same course.

use super::rounds::{Pair, round, rounds};
use super::tally::{Tally, Trial};

/// Number of rounds for a survey of all edges with eight nodes.
const WHOLE: usize = 7;

/// The limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of survey rounds with all ends. The survey is extended while it found no good end.
    pub survey: usize,
    /// Number of known-good partners an end must fail with before the end is blamed.
    pub confirm: usize,
    /// Number of trials without an answer after which an end without any answer is skipped. Trials
    /// of the survey are not counted.
    pub errors: usize,
    /// Maximum number of rounds of all kinds. Ends undecided by then are unknown.
    pub rounds: usize,
}

impl Limits {
    /// Returns the limits for a number of ends. In a small run, every pair is measured. In a larger
    /// run only some edges are measured, and another run measures others.
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

/// The next step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Measure these pairs at the same time. Each end is in at most one of them.
    Measure(Vec<Pair>),
    /// Further trials would add no information, or the run has reached its limits.
    Done,
}

/// Returns the next step after the given rounds.
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
    match pick_partners(&tally, &late, limits) {
        pairs if pairs.is_empty() => Next::Done,
        pairs => Next::Measure(pairs),
    }
}

/// Returns the number of survey rounds. While trials failed and none passed, the survey is
/// extended, because the next round may contain two good ends.
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

/// Returns a pair for each end needing a trial: the end and a free known-good partner. The first
/// such end always gets a partner if one exists.
fn pick_partners(tally: &Tally, late: &Tally, limits: &Limits) -> Vec<Pair> {
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
        // A partner with errors in other pairs may lack the tool, so partners with few errors are
        // preferred.
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
