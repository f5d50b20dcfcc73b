//! Properties for all inputs: disjoint pairs, no answered pair measured twice, an end of every run,
//! and equal sentences after a restart.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{Fabric, fabrics};
use crate::fabric::*;
use crate::gates::Verdict;

fn disjoint(pairs: &[Pair], ends: usize) -> bool {
    let mut seen = BTreeSet::new();
    pairs
        .iter()
        .all(|pair| pair.a < pair.b && pair.b < ends && seen.insert(pair.a) && seen.insert(pair.b))
}

#[test]
fn everybody_meets_everybody_once() {
    for ends in 0..40 {
        let mut met = BTreeSet::new();
        for number in 0..rounds(ends) {
            let pairs = round(ends, number);
            assert!(disjoint(&pairs, ends), "{ends}: {pairs:?}");
            assert_eq!(
                pairs.len(),
                ends / 2,
                "nobody rests who need not: {ends}, round {number}"
            );
            assert!(
                pairs.into_iter().all(|pair| met.insert(pair)),
                "{ends}: met twice"
            );
        }
        assert_eq!(met.len(), ends * ends.saturating_sub(1) / 2, "{ends}");
    }
}

#[test]
fn a_history_of_other_ends_is_borne() {
    let stray = Trial {
        pair: Pair { a: 3, b: 90 },
        verdict: Verdict::Fail,
    };
    let own = Trial {
        pair: Pair { a: 2, b: 2 },
        verdict: Verdict::Fail,
    };
    let found = verdicts(4, &Limits::default(), &[vec![stray, own]]);
    assert!(found.edges.is_empty());
    assert_eq!(next(1, &Limits::default(), &[]), Next::Done);
}

proptest! {
    #[test]
    fn rounds_are_disjoint_new_and_few(fabric in fabrics(), survey in 0..5usize, most in 1..20usize) {
        let limits = Limits { survey, rounds: most, ..Limits::default() };
        let (done, _) = fabric.run(&limits);
        prop_assert!(done.len() <= most);
        let mut decided = BTreeSet::new();
        for trials in &done {
            let pairs: Vec<Pair> = trials.iter().map(|trial| trial.pair).collect();
            prop_assert!(disjoint(&pairs, fabric.ends), "{:?}", pairs);
            let answered = trials.iter().filter(|trial| trial.verdict != Verdict::Error);
            for trial in answered {
                prop_assert!(decided.insert(trial.pair), "{:?} has its answer", trial.pair);
            }
        }
    }

    /// An interrupted run continues on the same course.
    #[test]
    fn a_run_is_a_function_of_its_trials(fabric in fabrics(), at in 0..8usize) {
        let limits = Limits::default();
        let (done, _) = fabric.run(&limits);
        let broken = &done[..at.min(done.len())];
        let again = next(fabric.ends, &limits, broken);
        match done.get(broken.len()) {
            Some(trials) => prop_assert_eq!(again, Next::Measure(trials.iter().map(|trial| trial.pair).collect())),
            None => prop_assert_eq!(again, Next::Done),
        }
    }

    #[test]
    fn with_nothing_wrong_nothing_is_said(ends in 2..20usize) {
        let (done, found) = Fabric::of(ends).run(&Limits::default());
        prop_assert!(found.clean() && found.sentences(&[]).is_empty());
        prop_assert!(done.len() <= Limits::default().survey);
    }
}
