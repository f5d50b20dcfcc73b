//! Fabrics with bad ends and bad edges, measured as in a run.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::gates::Verdict;

mod bounds; // Rounds, disjointness, odd answers
mod ways; // Verdicts from gate results

/// The faults of a fabric, and the rate of trials without an answer.
#[derive(Clone, Debug, Default)]
struct Fabric {
    ends: usize,
    bad_ends: BTreeSet<usize>,
    bad_edges: BTreeSet<Pair>,
    /// One in `errs` trials has an error; 0 means never.
    errs: u64,
    seed: u64,
}

impl Fabric {
    fn of(ends: usize) -> Self {
        Self {
            ends,
            ..Self::default()
        }
    }

    fn trial(&self, round: usize, pair: Pair) -> Trial {
        // A deterministic scrambler: the same trial of the same fabric has the same result.
        let mut mixed = self.seed ^ ((round * 1000 + pair.a) * 1000 + pair.b) as u64;
        for _ in 0..3 {
            mixed = mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            mixed ^= mixed >> 29;
        }
        let broken = self.bad_ends.contains(&pair.a) || self.bad_ends.contains(&pair.b);
        let verdict = match () {
            () if self.errs > 0 && mixed.is_multiple_of(self.errs) => Verdict::Error,
            () if broken || self.bad_edges.contains(&pair) => Verdict::Fail,
            () => Verdict::Pass,
        };
        Trial { pair, verdict }
    }

    /// Runs the measurement to the end.
    fn run(&self, limits: &Limits) -> (Vec<Vec<Trial>>, Verdicts) {
        let mut done: Vec<Vec<Trial>> = Vec::new();
        while let Next::Measure(pairs) = next(self.ends, limits, &done) {
            assert!(!pairs.is_empty() && done.len() < limits.rounds, "{done:?}");
            done.push(
                pairs
                    .into_iter()
                    .map(|pair| self.trial(done.len(), pair))
                    .collect(),
            );
        }
        let found = verdicts(self.ends, limits, &done);
        (done, found)
    }
}

fn blamed_ends(found: &Verdicts) -> BTreeSet<usize> {
    let blamed = |(end, verdict): (usize, &EndVerdict)| {
        matches!(verdict, EndVerdict::Blamed { .. }).then_some(end)
    };
    found.ends.iter().enumerate().filter_map(blamed).collect()
}

fn blamed_edges(found: &Verdicts) -> BTreeSet<Pair> {
    found
        .edges
        .iter()
        .filter(|edge| edge.verdict == EdgeVerdict::Blamed)
        .map(|edge| edge.pair)
        .collect()
}

#[test]
fn of_six_nodes_the_one_with_a_bad_link_is_found() {
    for bad in 0..6 {
        let fabric = Fabric {
            bad_ends: [bad].into(),
            ..Fabric::of(6)
        };
        let (done, found) = fabric.run(&Limits::default());
        assert_eq!(
            (blamed_ends(&found), blamed_edges(&found)),
            ([bad].into(), [].into())
        );
        assert!(done.len() <= 4, "{done:?}");
        assert!(
            found
                .edges
                .iter()
                .all(|edge| edge.verdict == EdgeVerdict::Explained { by: vec![bad] }),
            "{found:?}"
        );
    }
}

#[test]
fn one_round_leaves_it_to_the_re_pairing_to_find_the_end() {
    let fabric = Fabric {
        bad_ends: [4].into(),
        ..Fabric::of(6)
    };
    let (done, found) = fabric.run(&Limits {
        survey: 1,
        ..Limits::default()
    });
    let partner = done[0]
        .iter()
        .find(|trial| trial.pair.has(4))
        .unwrap()
        .pair
        .other(4);
    // Both ends of the edge are suspects, so each meets a partner that passed.
    assert_eq!(done[1].len(), 2);
    assert!(
        done[1].iter().any(|trial| trial.pair.has(4))
            && done[1].iter().any(|trial| trial.pair.has(partner))
    );
    assert_eq!((blamed_ends(&found), done.len()), ([4].into(), 2));
    assert_eq!(found.ends[partner], EndVerdict::Good);
    let names: Vec<String> = (0..6).map(|n| format!("n{n}")).collect();
    let told = found.sentences(&names);
    assert!(
        told.len() == 1 && told[0].starts_with("n4 fails with "),
        "{told:?}"
    );
}

#[test]
fn a_bad_path_between_good_nodes_is_the_edges_fault() {
    let pair = Pair::of(5, 1);
    let fabric = Fabric {
        bad_edges: [pair].into(),
        ..Fabric::of(6)
    };
    let (_, found) = fabric.run(&Limits {
        survey: 5,
        ..Limits::default()
    });
    assert_eq!(
        (blamed_ends(&found), blamed_edges(&found)),
        ([].into(), [pair].into())
    );
    let told = found.sentences(&["a", "b", "c", "d", "e", "f"].map(String::from));
    assert_eq!(
        told,
        ["b and f fail with each other and pass with others: check the path between the two"]
    );
    assert!(!found.clean());
}

#[test]
fn few_nodes_leave_no_edge_unmeasured() {
    for ends in 2..=8 {
        let (done, _) = Fabric::of(ends).run(&Limits::of(ends));
        assert_eq!(
            done.iter().map(Vec::len).sum::<usize>(),
            ends * (ends - 1) / 2,
            "{ends} ends"
        );
    }
    for (ends, bad) in (2..6).flat_map(|a| (0..a).map(move |b| (6, Pair::of(a, b)))) {
        let (_, found) = Fabric {
            bad_edges: [bad].into(),
            ..Fabric::of(ends)
        }
        .run(&Limits::of(ends));
        assert_eq!(
            (blamed_ends(&found), blamed_edges(&found)),
            ([].into(), [bad].into())
        );
    }
    assert_eq!(Limits::of(64).survey, Limits::default().survey);
}

#[test]
fn where_nobody_is_known_good_nothing_is_blamed() {
    let pair = Fabric {
        bad_edges: [Pair::of(0, 1)].into(),
        ..Fabric::of(2)
    };
    let (_, found) = pair.run(&Limits::default());
    let unknown = EndVerdict::Unknown {
        why: Why::NobodyGood,
    };
    assert_eq!(found.ends, [unknown.clone(), unknown.clone()]);
    assert_eq!(found.edges[0].verdict, EdgeVerdict::Unknown);
    let all = Fabric {
        bad_ends: (0..8).collect(),
        ..Fabric::of(8)
    };
    let (done, found) = all.run(&Limits::default());
    assert!(found.ends.iter().all(|end| *end == unknown), "{found:?}");
    assert_eq!(
        done.len(),
        rounds(8),
        "every round is asked for two that pass"
    );
    assert!(
        found
            .sentences(&[])
            .iter()
            .all(|told| told.contains("no pair passed at all"))
    );
}

#[test]
fn failures_alone_are_measured_on_until_two_pass() {
    // The first round pairs each bad node with a good node.
    let first = round(4, 0);
    let fabric = Fabric {
        bad_ends: first.iter().map(|pair| pair.a).collect(),
        ..Fabric::of(4)
    };
    let (_, found) = fabric.run(&Limits {
        survey: 1,
        ..Limits::default()
    });
    assert_eq!(blamed_ends(&found), fabric.bad_ends);
}

#[test]
fn errors_blame_nobody_and_are_not_repeated_for_ever() {
    let dumb = Fabric {
        errs: 1,
        ..Fabric::of(7)
    };
    let (done, found) = dumb.run(&Limits::default());
    assert_eq!(
        done.len(),
        Limits::default().survey,
        "nobody is known good, so nobody is asked again"
    );
    assert!(
        found
            .ends
            .iter()
            .all(|end| *end == EndVerdict::Unknown { why: Why::NoAnswer }),
        "{found:?}"
    );
    assert!(found.edges.is_empty());
    // One node without the tool, among good nodes.
    let mut done: Vec<Vec<Trial>> = Vec::new();
    while let Next::Measure(pairs) = next(6, &Limits::default(), &done) {
        let verdict = |pair: &Pair| {
            if pair.has(2) {
                Verdict::Error
            } else {
                Verdict::Pass
            }
        };
        done.push(
            pairs
                .iter()
                .map(|pair| Trial {
                    pair: *pair,
                    verdict: verdict(pair),
                })
                .collect(),
        );
    }
    let found = verdicts(6, &Limits::default(), &done);
    assert_eq!(
        (done.len(), &found.ends[2]),
        (6, &EndVerdict::Unknown { why: Why::NoAnswer })
    );
    assert!(
        found
            .ends
            .iter()
            .enumerate()
            .all(|(end, verdict)| end == 2 || *verdict == EndVerdict::Good)
    );
}

/// Fabrics with some bad ends, bad edges and errors.
fn fabrics() -> impl Strategy<Value = Fabric> {
    (2..14usize).prop_flat_map(|ends| {
        let bad_ends = prop::collection::btree_set(0..ends, 0..=ends.div_ceil(3));
        let edge = (0..ends, 0..ends)
            .prop_filter("two ends", |(a, b)| a != b)
            .prop_map(|(a, b)| Pair::of(a, b));
        let bad_edges = prop::collection::btree_set(edge, 0..4usize);
        (bad_ends, bad_edges, 0..6u64, any::<u64>()).prop_map(
            move |(bad_ends, bad_edges, errs, seed)| Fabric {
                ends,
                bad_ends,
                bad_edges,
                errs: if errs == 1 { 0 } else { errs },
                seed,
            },
        )
    })
}

proptest! {
    #[test]
    fn nobody_innocent_is_blamed(fabric in fabrics(), survey in 1..5usize) {
        let limits = Limits { survey, ..Limits::default() };
        let (_, found) = fabric.run(&limits);
        for end in blamed_ends(&found) {
            // A healthy end is blamed only with at least as many broken edges as partners required.
            let edges = fabric.bad_edges.iter().filter(|pair| pair.has(end)).count();
            prop_assert!(fabric.bad_ends.contains(&end) || edges >= limits.confirm, "{end}: {found:?}");
        }
        prop_assert!(blamed_edges(&found).is_subset(&fabric.bad_edges), "{found:?}");
    }

    #[test]
    fn every_bad_end_is_found_where_enough_good_ones_are(fabric in fabrics(), survey in 1..5usize) {
        let good = fabric.ends - fabric.bad_ends.len();
        prop_assume!(good >= 4);
        let fabric = Fabric { errs: 0, bad_edges: BTreeSet::new(), ..fabric };
        let (_, found) = fabric.run(&Limits { survey, ..Limits::default() });
        prop_assert_eq!(blamed_ends(&found), fabric.bad_ends);
        prop_assert!(blamed_edges(&found).is_empty());
        prop_assert!(found.ends.iter().all(|end| !matches!(end, EndVerdict::Unknown { .. })), "{:?}", found);
    }

    #[test]
    fn a_bad_edge_that_was_measured_is_found(ends in 4..14usize, one in 0..14usize, step in 1..13usize) {
        let Pair { a, b } = Pair::of(one % ends, (one % ends + 1 + step % (ends - 1)) % ends);
        let fabric = Fabric { bad_edges: [Pair { a, b }].into(), ..Fabric::of(ends) };
        let (_, found) = fabric.run(&Limits { survey: rounds(ends), ..Limits::default() });
        prop_assert_eq!(blamed_edges(&found), fabric.bad_edges);
        prop_assert!(blamed_ends(&found).is_empty());
    }
}
