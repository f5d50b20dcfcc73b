//! The waves of a rollout as columns, with one small mark for each node. Columns and marks are
//! bounded.

use std::collections::BTreeMap;

use muster_api::rollouts::RolloutNode;

use crate::ui::chips::{self, Chip};
use crate::ui::format;

/// Most marks in a column.
const MARKS: usize = 60;
/// Most columns.
const COLUMNS: usize = 12;
/// Ended waves shown before the first wave that has not ended.
const ENDED: usize = 2;

/// The columns, with the numbers of waves that are not shown.
pub(super) struct Waves {
    pub columns: Vec<Column>,
    /// Ended waves before the first column.
    pub earlier: usize,
    /// Waves after the last column.
    pub later: usize,
}

/// A wave.
pub(super) struct Column {
    /// `Canary`, `Wave 2`, `No wave`.
    pub title: String,
    /// `3 of 5 ended`.
    pub told: String,
    pub marks: Vec<NodeMark>,
    /// Nodes without a mark in the column.
    pub more: String,
}

/// The mark of a node.
pub(super) struct NodeMark {
    pub node: String,
    pub chip: Chip,
    /// `n1: changing`.
    pub title: String,
}

/// Draws the waves of a rollout.
pub(super) fn draw(nodes: &[RolloutNode]) -> Waves {
    let mut waves: BTreeMap<u32, Vec<&RolloutNode>> = BTreeMap::new();
    let mut outside = Vec::new();
    for node in nodes {
        match node.wave {
            Some(number) => waves.entry(number).or_default().push(node),
            None => outside.push(node),
        }
    }
    let has_ended = |nodes: &Vec<&RolloutNode>| nodes.iter().all(|node| node.mark.is_terminal());
    let ended = waves.values().take_while(|nodes| has_ended(nodes)).count();
    let earlier = match waves.len() > COLUMNS {
        true => ended
            .saturating_sub(ENDED)
            .min(waves.len().saturating_sub(COLUMNS)),
        false => 0,
    };
    let later = waves.len().saturating_sub(earlier + COLUMNS);
    let shown = waves.into_iter().skip(earlier).take(COLUMNS);
    let mut columns: Vec<Column> = shown
        .map(|(number, nodes)| render_column(name_wave(number), &nodes))
        .collect();
    if !outside.is_empty() {
        columns.push(render_column("No wave".to_owned(), &outside));
    }
    Waves {
        columns,
        earlier,
        later,
    }
}

/// Returns the name of a wave.
pub(super) fn name_wave(number: u32) -> String {
    match number {
        0 => "Canary".to_owned(),
        number => format!("Wave {number}"),
    }
}

fn render_column(title: String, nodes: &[&RolloutNode]) -> Column {
    let ended = nodes.iter().filter(|node| node.mark.is_terminal()).count();
    let more = nodes.len().saturating_sub(MARKS);
    Column {
        title,
        told: format!("{ended} of {} ended", nodes.len()),
        marks: nodes
            .iter()
            .take(MARKS)
            .map(|node| render_mark(node))
            .collect(),
        more: match more {
            0 => String::new(),
            more => format!(
                "and {} more",
                format::count(i64::try_from(more).unwrap_or(i64::MAX))
            ),
        },
    }
}

fn render_mark(node: &RolloutNode) -> NodeMark {
    let chip = chips::mark(node.mark);
    NodeMark {
        title: format!("{}: {}", node.node, chip.word),
        node: node.node.clone(),
        chip,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_core::rollout::Mark;

    use super::*;

    fn node(number: u32, wave: Option<u32>, mark: Mark) -> RolloutNode {
        RolloutNode {
            node: format!("n{number}"),
            mark,
            wave,
            since: Timestamp::UNIX_EPOCH,
            running: None,
            effect: None,
            state: "in_service".to_owned(),
            why: None,
            last: None,
            overdue: false,
            lost_gpu_seconds: None,
            requeue_agreed_at: None,
            compared: Vec::new(),
        }
    }

    #[test]
    fn a_large_wave_shows_a_bounded_number_of_marks() {
        let nodes: Vec<RolloutNode> = (0..10_000)
            .map(|number| node(number, Some(1), Mark::NotBegun))
            .collect();
        let waves = draw(&nodes);
        assert_eq!(waves.columns[0].marks.len(), MARKS);
        assert_eq!(waves.columns[0].more, "and 9,940 more");
    }

    #[test]
    fn many_waves_show_the_wave_under_way() {
        let mark = |wave| match wave < 30 {
            true => Mark::Done,
            false => Mark::NotBegun,
        };
        let mut nodes: Vec<RolloutNode> = (0..50)
            .map(|wave| node(wave, Some(wave), mark(wave)))
            .collect();
        nodes.push(node(99, None, Mark::Skipped));
        let waves = draw(&nodes);
        assert_eq!((waves.earlier, waves.later), (28, 10));
        assert_eq!(waves.columns.len(), COLUMNS + 1);
        assert_eq!(waves.columns[0].title, "Wave 28");
        assert_eq!(waves.columns[COLUMNS].title, "No wave");
    }
}
