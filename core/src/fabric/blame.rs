//! Verdicts about ends and edges from the trials. An end is blamed if no trial of the end passed,
//! and the end failed with enough known-good partners. An edge is blamed if both ends passed with
//! other partners. A healthy end can be blamed only if at least `confirm` of its edges are broken.

use serde::{Deserialize, Serialize};

use super::hunt::Limits;
use super::rounds::Pair;
use super::tally::{Tally, Trial};

/// The verdict about one end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum EndVerdict {
    /// The end passed with at least one partner.
    Good,
    /// The end passed with no partner, and failed with these known-good partners.
    Blamed {
        with: Vec<usize>,
    },
    Unknown {
        why: Why,
    },
}

/// The reason for an unknown verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// No trial of the end had an answer.
    NoAnswer,
    /// The end failed, and no end passed at all. The cause may be a shared component, or the
    /// threshold.
    NobodyGood,
    /// The end failed, but there were too few known-good partners for further trials.
    TooFewGood,
}

/// The verdict about a failed pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum EdgeVerdict {
    /// Both ends are good, so the path between them is faulty.
    Blamed,
    /// One or both ends are blamed.
    Explained {
        by: Vec<usize>,
    },
    Unknown,
}

/// A failed pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    pub pair: Pair,
    #[serde(flatten)]
    pub verdict: EdgeVerdict,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdicts {
    pub ends: Vec<EndVerdict>,
    /// Failed pairs, sorted by ends.
    pub edges: Vec<Edge>,
}

/// Returns the verdicts about every end and every failed pair.
pub fn verdicts(ends: usize, limits: &Limits, done: &[Vec<Trial>]) -> Verdicts {
    let tally = Tally::of(ends, done.iter().flatten());
    let of_ends: Vec<EndVerdict> = (0..ends)
        .map(|end| end_verdict(end, &tally, limits))
        .collect();
    let mut edges = Vec::new();
    for a in 0..ends {
        for b in tally.failed[a].range(a..).copied() {
            let by: Vec<usize> = [a, b]
                .into_iter()
                .filter(|end| matches!(of_ends[*end], EndVerdict::Blamed { .. }))
                .collect();
            let verdict = match by.is_empty() {
                false => EdgeVerdict::Explained { by },
                true if tally.good(a) && tally.good(b) => EdgeVerdict::Blamed,
                true => EdgeVerdict::Unknown,
            };
            edges.push(Edge {
                pair: Pair { a, b },
                verdict,
            });
        }
    }
    Verdicts {
        ends: of_ends,
        edges,
    }
}

fn end_verdict(end: usize, tally: &Tally, limits: &Limits) -> EndVerdict {
    let with = tally.failed_with_good(end);
    match (
        tally.good(end),
        tally.failed[end].is_empty(),
        tally.anybody_good(),
    ) {
        (true, _, _) => EndVerdict::Good,
        (false, true, _) => EndVerdict::Unknown { why: Why::NoAnswer },
        (false, false, _) if with.len() >= limits.confirm => EndVerdict::Blamed { with },
        (false, false, true) => EndVerdict::Unknown {
            why: Why::TooFewGood,
        },
        (false, false, false) => EndVerdict::Unknown {
            why: Why::NobodyGood,
        },
    }
}

impl Verdicts {
    /// Returns whether all ends are good and no pair failed.
    pub fn clean(&self) -> bool {
        self.edges.is_empty() && self.ends.iter().all(|end| *end == EndVerdict::Good)
    }

    /// Returns one sentence for every blamed end and edge, then one for every unknown end. `names`
    /// are the names of the ends, in order.
    pub fn sentences(&self, names: &[String]) -> Vec<String> {
        let name = |end: &usize| names.get(*end).map_or("?", String::as_str);
        let list = |ends: &[usize]| ends.iter().map(name).collect::<Vec<_>>().join(", ");
        let mut blamed = Vec::new();
        let mut unknown = Vec::new();
        for (end, verdict) in self.ends.iter().enumerate() {
            let who = name(&end);
            match verdict {
                EndVerdict::Good => {}
                EndVerdict::Blamed { with } => blamed.push(format!(
                    "{who} fails with {}, which pass with others: check its adapter, its cable and its switch port",
                    list(with)
                )),
                EndVerdict::Unknown { why: Why::NoAnswer } => {
                    unknown.push(format!("{who} is unknown: no measurement of the node had an answer"));
                }
                EndVerdict::Unknown { why: Why::NobodyGood } => unknown.push(format!(
                    "{who} is unknown: no pair passed at all, so check the parts shared by all pairs, and the threshold"
                )),
                EndVerdict::Unknown { why: Why::TooFewGood } => unknown.push(format!(
                    "{who} is unknown: the node failed, and too few known-good partners were left for another measurement"
                )),
            }
        }
        for Edge { pair, verdict } in &self.edges {
            let (a, b) = (name(&pair.a), name(&pair.b));
            if *verdict == EdgeVerdict::Blamed {
                blamed.push(format!(
                    "{a} and {b} fail with each other and pass with others: check the path between the two"
                ));
            }
        }
        blamed.extend(unknown);
        blamed
    }
}
