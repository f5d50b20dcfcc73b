//! All pairs of ends, in the minimum number of rounds, with each end at most once per round: the
//! circle method of tournaments (a 1-factorisation of the complete graph). Two simultaneous pairs
//! with a common end would disturb each other's measurement.

use serde::{Deserialize, Serialize};

/// Two different ends, by index in the run's list. The smaller index comes first, so each pair has
/// a unique form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pair {
    pub a: usize,
    pub b: usize,
}

impl Pair {
    /// Returns the pair of two ends, given in any order.
    pub fn of(one: usize, other: usize) -> Self {
        Self {
            a: one.min(other),
            b: one.max(other),
        }
    }

    /// Returns whether an end is in the pair.
    pub fn has(self, end: usize) -> bool {
        self.a == end || self.b == end
    }

    /// Returns the other end of the pair.
    pub fn other(self, end: usize) -> usize {
        if self.a == end { self.b } else { self.a }
    }
}

/// Returns the number of rounds until every pair was measured. With an odd number of ends, one end
/// rests in each round.
pub fn rounds(ends: usize) -> usize {
    match ends {
        0 | 1 => 0,
        even if even % 2 == 0 => even - 1,
        odd => odd,
    }
}

/// Returns the pairs of a round, counted from 0. The [`rounds`] rounds have no pair in common.
pub fn round(ends: usize, number: usize) -> Vec<Pair> {
    if ends < 2 {
        return Vec::new();
    }
    // The last seat stays fixed and all others rotate by one. With an odd number of ends, the last
    // seat is empty.
    let seats = ends + ends % 2;
    let circle = seats - 1;
    let number = number % circle;
    let mut pairs = vec![Pair::of(number, circle)];
    pairs.extend(
        (1..seats / 2)
            .map(|step| Pair::of((number + step) % circle, (number + circle - step) % circle)),
    );
    pairs.retain(|pair| pair.b < ends);
    pairs.sort_unstable();
    pairs
}
