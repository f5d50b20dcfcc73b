//! Sections of the page of a rollout: the facts, the estimated end, the forms, and the table of
//! nodes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_api::rollouts::{
    NodeComparison, Rollout, RolloutEstimate, RolloutNode, RolloutReason, RolloutState,
};
use muster_core::rollout::Mark;

use crate::ui::chips::{self, Chip};
use crate::ui::format::{self, Moment};

/// Most nodes of the table on one page.
const ROWS: usize = 100;
/// Most names of busy nodes.
const BUSY: usize = 20;

/// The acts that the reader may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rights {
    pub halt: bool,
    pub start: bool,
    pub plan: bool,
}

/// Nodes changing or validating: the work that a halt lets end.
pub(super) struct Busy {
    pub nodes: Vec<NodeName>,
    pub more: usize,
}

/// A node by name, with the chip of its mark.
pub(super) struct NodeName {
    pub name: String,
    pub chip: Chip,
}

/// Returns the nodes whose work goes on during a halt.
pub(super) fn find_busy(nodes: &[RolloutNode]) -> Busy {
    let is_busy = |node: &&RolloutNode| matches!(node.mark, Mark::Changing | Mark::Validating);
    let busy: Vec<&RolloutNode> = nodes.iter().filter(is_busy).collect();
    let name = |node: &&RolloutNode| NodeName {
        name: node.node.clone(),
        chip: chips::mark(node.mark),
    };
    Busy {
        more: busy.len().saturating_sub(BUSY),
        nodes: busy.iter().take(BUSY).map(name).collect(),
    }
}

/// The estimated end.
pub(super) struct End {
    /// The early and the late end. `None` without an estimate.
    pub times: Option<(Moment, Moment)>,
    pub assumes: Vec<String>,
    /// Why the end is unknown.
    pub unknown: String,
    /// Time of the calculation; `None` for now.
    pub as_of: Option<Moment>,
}

/// Renders the estimated end.
pub(super) fn render_end(estimate: &RolloutEstimate, now: Timestamp) -> End {
    let times = estimate.early.zip(estimate.late);
    // `in 1 h to 3 h`.
    let late = |at: Timestamp| {
        let seen = format::moment(at, now);
        let relative = seen.relative.trim_start_matches("in ").to_owned();
        Moment { relative, ..seen }
    };
    End {
        times: times.map(|(early, end)| (format::moment(early, now), late(end))),
        assumes: estimate
            .assumes
            .iter()
            .map(|told| format::cut(told, 300))
            .collect(),
        unknown: format::cut(estimate.unknown.as_deref().unwrap_or_default(), 400),
        as_of: estimate.as_of.map(|at| format::moment(at, now)),
    }
}

/// The form that starts a plan.
pub(super) struct Start {
    /// Number of planned nodes, to be typed.
    pub planned: u32,
    /// `30 reboot, 8 in place`.
    pub effects: String,
    /// Digest of the plan as shown.
    pub plan: String,
    /// The open rollout of the pool. Empty without one.
    pub other: String,
}

/// Counts the planned effects.
pub(super) fn count_effects(nodes: &[RolloutNode]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes {
        let effect = node.effect.as_deref().unwrap_or("unknown");
        let word = match effect {
            "none" => "without a change".to_owned(),
            effect => effect.replace('_', " "),
        };
        *counts.entry(word).or_default() += 1;
    }
    let told: Vec<String> = counts
        .into_iter()
        .map(|(word, count)| format!("{count} {word}"))
        .collect();
    told.join(", ")
}

/// The table of nodes, filtered by mark, one page of it.
pub(super) struct Table {
    pub choices: Vec<Choice>,
    pub rows: Vec<Row>,
    pub filtered: bool,
    /// The address of the next page. Empty on the last page.
    pub next: String,
}

/// A filter by mark.
pub(super) struct Choice {
    pub word: String,
    pub href: String,
    pub chosen: bool,
}

/// A node of the table.
pub(super) struct Row {
    pub node: String,
    pub chip: Chip,
    pub wave: String,
    pub effect: String,
    pub state: Chip,
    pub since: Moment,
    pub why: String,
    /// The node has not ended by the date of the policy.
    pub late: bool,
    /// The acts of a person on the node, as word and title.
    pub acts: Vec<(&'static str, &'static str)>,
}

/// The choice of nodes in the query.
pub(super) struct Chosen<'a> {
    pub mark: Option<Mark>,
    /// Name of the last node of the page before.
    pub after: &'a str,
}

/// Renders a page of the nodes. `acts`: the reader may skip and retry nodes.
pub(super) fn render_table(
    rollout: &Rollout,
    chosen: &Chosen<'_>,
    acts: bool,
    now: Timestamp,
) -> Table {
    let nodes = rollout.nodes.as_deref().unwrap_or_default();
    let path = format!("/rollouts/{}", format::escape(&rollout.name));
    let is_chosen = |node: &&RolloutNode| {
        chosen.mark.is_none_or(|mark| node.mark == mark) && node.node.as_str() > chosen.after
    };
    let mut matching: Vec<&RolloutNode> = nodes.iter().filter(is_chosen).collect();
    matching.sort_by(|a, b| a.node.cmp(&b.node));
    let more = matching.len() > ROWS;
    matching.truncate(ROWS);
    let part = chosen.mark.map(|mark| format!("mark={mark}&"));
    let next = matching.last().filter(|_| more).map(|last| {
        let part = part.unwrap_or_default();
        format!("{path}?{part}after={}#nodes", format::escape(&last.node))
    });
    let all = Choice {
        word: "all".to_owned(),
        href: format!("{path}#nodes"),
        chosen: chosen.mark.is_none(),
    };
    let marks = Mark::ALL.iter().filter_map(|mark| {
        let count = rollout.marks.get(mark.as_str()).copied()?;
        Some(Choice {
            word: format!("{} {count}", mark.as_str().replace('_', " ")),
            href: format!("{path}?mark={mark}#nodes"),
            chosen: chosen.mark == Some(*mark),
        })
    });
    let is_open = matches!(rollout.state, RolloutState::Running | RolloutState::Halted);
    Table {
        choices: std::iter::once(all).chain(marks).collect(),
        filtered: chosen.mark.is_some() || !chosen.after.is_empty(),
        rows: matching
            .into_iter()
            .map(|node| render_row(node, acts && is_open, now))
            .collect(),
        next: next.unwrap_or_default(),
    }
}

fn render_row(node: &RolloutNode, acts: bool, now: Timestamp) -> Row {
    let acts = match acts {
        true => list_acts(node),
        false => Vec::new(),
    };
    let sentence = |reason: &Option<RolloutReason>| {
        let reason = reason.as_ref()?;
        Some(reason.sentence.clone())
    };
    let why = sentence(&node.why).or_else(|| sentence(&node.last));
    let mut why = why.unwrap_or_default();
    if node.requeue_agreed_at.is_some() {
        why.push_str(" (its jobs may be requeued)");
    }
    for one in node.compared.iter().filter(|one| is_worth_showing(one)) {
        why.push_str("; ");
        why.push_str(&one.sentence);
    }
    Row {
        node: node.node.clone(),
        chip: chips::mark(node.mark),
        wave: node.wave.map(super::waves::name_wave).unwrap_or_default(),
        effect: node
            .effect
            .as_deref()
            .unwrap_or("unknown")
            .replace('_', " "),
        state: chips::state_word(&node.state),
        since: format::moment(node.since, now),
        why: format::cut(&why, 300),
        late: node.overdue,
        acts,
    }
}

/// Whether a comparison shows a loss beyond the limit, or could not be made.
fn is_worth_showing(compared: &NodeComparison) -> bool {
    compared.is_worse || compared.problem.is_some()
}

/// Lists the acts of a person on a node, as word and title.
fn list_acts(node: &RolloutNode) -> Vec<(&'static str, &'static str)> {
    let may_requeue = node.requeue_agreed_at.is_none();
    match node.mark {
        Mark::Waiting if may_requeue => vec![("requeue", "Requeue…"), ("skip", "Skip…")],
        Mark::NotBegun | Mark::Waiting => vec![("skip", "Skip…")],
        Mark::Failed | Mark::Skipped => vec![("retry", "Retry…")],
        Mark::Changing | Mark::Validating | Mark::Done => Vec::new(),
    }
}
