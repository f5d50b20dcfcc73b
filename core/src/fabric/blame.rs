//! What the trials say of ends and edges. An end is blamed that passed with nobody and failed with enough known-good partners; an edge, when both its
//! ends passed with others. With fewer than that many broken edges at each end, nobody innocent is blamed.

use serde::{Deserialize, Serialize};

use super::hunt::Limits;
use super::rounds::Pair;
use super::tally::{Tally, Trial};

/// What is known of one end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum EndVerdict {
    /// It passed with somebody.
    Good,
    /// It passed with nobody, and failed with these, who are known good.
    Blamed {
        with: Vec<usize>,
    },
    Unknown {
        why: Why,
    },
}

/// Why nothing can be said of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// No trial of it had an answer.
    NoAnswer,
    /// It failed, and so did everybody: the fault may be what all of them share, or the threshold.
    NobodyGood,
    /// It failed, and there were not enough known-good partners to measure it with.
    TooFewGood,
}

/// What is known of a pair that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum EdgeVerdict {
    /// Both ends are good: it is what lies between them.
    Blamed,
    /// An end of it is blamed, or both are.
    Explained {
        by: Vec<usize>,
    },
    Unknown,
}

/// A pair that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    pub pair: Pair,
    #[serde(flatten)]
    pub verdict: EdgeVerdict,
}

/// What a run found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdicts {
    pub ends: Vec<EndVerdict>,
    /// Pairs that failed, by their ends.
    pub edges: Vec<Edge>,
}

/// What trials say of every end, and of every pair that failed.
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
    /// Whether nothing failed and every end is known good.
    pub fn clean(&self) -> bool {
        self.edges.is_empty() && self.ends.iter().all(|end| *end == EndVerdict::Good)
    }

    /// A sentence for every end and edge that is blamed, then for those that are unknown. Names are the ends', in their order.
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
                    "{who} fails with {}, who pass with others: look at its adapter, its cable and its switch port",
                    list(with)
                )),
                EndVerdict::Unknown { why: Why::NoAnswer } => {
                    unknown.push(format!("{who} is unknown: no measurement of it had an answer"));
                }
                EndVerdict::Unknown { why: Why::NobodyGood } => unknown.push(format!(
                    "{who} is unknown: no pair passed at all, so look at what all of them share, and at the threshold"
                )),
                EndVerdict::Unknown { why: Why::TooFewGood } => unknown.push(format!(
                    "{who} is unknown: it failed, and too few known-good partners were left to measure it with"
                )),
            }
        }
        for Edge { pair, verdict } in &self.edges {
            let (a, b) = (name(&pair.a), name(&pair.b));
            if *verdict == EdgeVerdict::Blamed {
                blamed.push(format!(
                    "{a} and {b} fail with each other and pass with others: look at what lies between the two"
                ));
            }
        }
        blamed.extend(unknown);
        blamed
    }
}
