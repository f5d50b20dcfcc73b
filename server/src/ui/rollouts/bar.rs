//! The nodes of a rollout by mark: a bar for the eye, and the counts as text.

use std::collections::BTreeMap;

use muster_core::rollout::Mark;

use crate::ui::chips;
use crate::ui::format;

/// Marks in the order of the bar: ended nodes first.
const ORDER: [Mark; 7] = [
    Mark::Done,
    Mark::Failed,
    Mark::Skipped,
    Mark::Validating,
    Mark::Changing,
    Mark::Waiting,
    Mark::NotBegun,
];

/// A bar with one part for each mark.
pub(in crate::ui) struct Bar {
    pub parts: Vec<Part>,
    /// The width of the bar: the number of nodes.
    pub total: u32,
    /// `3 done, 1 changing, 6 not begun`.
    pub told: String,
}

/// The nodes with one mark.
pub(in crate::ui) struct Part {
    pub tone: &'static str,
    pub x: u32,
    pub width: u32,
}

/// Draws the counts of nodes by mark.
pub(in crate::ui) fn draw(marks: &BTreeMap<String, u32>) -> Bar {
    let mut bar = Bar {
        parts: Vec::new(),
        total: 0,
        told: String::new(),
    };
    let mut told = Vec::new();
    for mark in ORDER {
        let count = marks.get(mark.as_str()).copied().unwrap_or_default();
        if count == 0 {
            continue;
        }
        let chip = chips::mark(mark);
        told.push(format!("{} {}", format::count(i64::from(count)), chip.word));
        bar.parts.push(Part {
            tone: chip.tone,
            x: bar.total,
            width: count,
        });
        bar.total = bar.total.saturating_add(count);
    }
    bar.told = match told.is_empty() {
        true => "no nodes".to_owned(),
        false => told.join(", "),
    };
    bar
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_mark_has_a_part_and_a_word() {
        let named: HashSet<Mark> = ORDER.into_iter().collect();
        assert_eq!(named.len(), Mark::ALL.len());
        let counts = |mark: &Mark| (mark.as_str().to_owned(), 2);
        let bar = draw(&Mark::ALL.iter().map(counts).collect());
        assert_eq!(bar.total, 2 * u32::try_from(Mark::ALL.len()).unwrap());
        assert!(bar.told.starts_with("2 done, 2 failed"), "{}", bar.told);
        assert_eq!(draw(&BTreeMap::new()).told, "no nodes");
    }
}
