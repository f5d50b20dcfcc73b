//! Everybody with everybody, in as few rounds as there can be, nobody twice in one: the circle method of tournaments (a 1-factorisation of the
//! complete graph). Two pairs that share an end would measure each other.

use serde::{Deserialize, Serialize};

/// Two different ends, by their place in the run's list; the smaller first, so that a pair has one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pair {
    pub a: usize,
    pub b: usize,
}

impl Pair {
    /// Of two ends in any order.
    pub fn of(one: usize, other: usize) -> Self {
        Self {
            a: one.min(other),
            b: one.max(other),
        }
    }

    /// Whether an end is in it.
    pub fn has(self, end: usize) -> bool {
        self.a == end || self.b == end
    }

    /// The end that is not this one.
    pub fn other(self, end: usize) -> usize {
        if self.a == end { self.b } else { self.a }
    }
}

/// Rounds until everybody has met everybody; with an odd number of ends one rests in each.
pub fn rounds(ends: usize) -> usize {
    match ends {
        0 | 1 => 0,
        even if even % 2 == 0 => even - 1,
        odd => odd,
    }
}

/// The pairs of a round, counted from 0; of [`rounds`] rounds no two have a pair in common.
pub fn round(ends: usize, number: usize) -> Vec<Pair> {
    if ends < 2 {
        return Vec::new();
    }
    // The last seat stays where it is, the others move on by one; with an odd number of ends nobody sits there.
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
