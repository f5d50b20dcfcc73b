//! Events and steps in one timeline. A step is placed at its start, with the step's duration and an
//! unfolding log.

use jiff::Timestamp;

use crate::db::events::EventRow;
use crate::db::operations::StepRow;
use crate::ui::chips::{self, Chip};
use crate::ui::format::{self, Moment, member};
use crate::ui::operations::step::{self, Step};

/// Most events and steps shown on a page. Older events are listed on the events page.
pub(super) const EVENTS: i64 = 150;
pub(super) const STEPS: i64 = 100;

pub(in crate::ui) struct Timeline {
    pub items: Vec<Item>,
    pub newest_first: bool,
    /// URL of the same page in the opposite order.
    pub turn: String,
    /// URL of the older events. Empty when all events are shown.
    pub older: String,
}

pub(in crate::ui) struct Item {
    pub at: Moment,
    pub what: What,
}

pub(in crate::ui) enum What {
    Event {
        kind: String,
        summary: String,
        actor: String,
        operation: Option<String>,
    },
    Transition {
        from: Chip,
        to: Chip,
        reason: String,
    },
    Step(Box<Step>),
}

impl Timeline {
    /// Keeps the links to the logs of steps only for a reader with the right to raw text.
    pub(super) fn with_logs(mut self, is_raw: bool) -> Self {
        for item in &mut self.items {
            match &mut item.what {
                What::Step(step) => step.has_log &= is_raw,
                What::Event { .. } | What::Transition { .. } => {}
            }
        }
        self
    }
}

/// Merges events and steps into one timeline.
pub(super) fn merge(
    name: &str,
    events: Vec<EventRow>,
    steps: Vec<StepRow>,
    order: &str,
    now: Timestamp,
) -> Timeline {
    let newest_first = order != "oldest";
    let cut = i64::try_from(events.len()).is_ok_and(|count| count == EVENTS);
    let older = events
        .last()
        .filter(|_| cut)
        .map(|row| format!("/events?node={name}&before={}", row.seq))
        .unwrap_or_default();
    let mut items: Vec<(Timestamp, Item)> = events
        .into_iter()
        // A step's own row records the queueing and the end. Failures are kept, because a later
        // attempt overwrites the failure in the step's row.
        .filter(|row| !matches!(row.kind.as_str(), "step.queued" | "step.succeeded"))
        .map(|row| (row.at, render_event(row, name, now)))
        .collect();
    items.extend(steps.into_iter().map(|row| {
        let at = row.started_at.map_or(row.created_at, |at| at.to_jiff());
        (
            at,
            Item {
                at: format::moment(at, now),
                what: What::Step(Box::new(step::render_step(row, now))),
            },
        )
    }));
    items.sort_by_key(|(at, _)| *at);
    if newest_first {
        items.reverse();
    }
    let turn = if newest_first {
        format!("/nodes/{name}?order=oldest#timeline")
    } else {
        format!("/nodes/{name}#timeline")
    };
    Timeline {
        items: items.into_iter().map(|(_, item)| item).collect(),
        newest_first,
        turn,
        older,
    }
}

fn render_event(row: EventRow, name: &str, now: Timestamp) -> Item {
    let what = match row.kind.as_str() {
        "node.advanced" => What::Transition {
            from: chips::state_word(member(&row.detail, "from")),
            to: chips::state_word(member(&row.detail, "to")),
            reason: format::cut(member(&row.detail, "reason"), 300),
        },
        _ => {
            let summary = row
                .summary
                .strip_prefix(name)
                .map_or(row.summary.as_str(), |rest| {
                    rest.trim_start_matches([':', ' '])
                });
            What::Event {
                kind: row.kind.replace(['.', '_'], " "),
                summary: format::cut(summary, 400),
                actor: format::cut(&row.actor, 80),
                operation: row.operation.map(|id| id.to_string()),
            }
        }
    };
    Item {
        at: format::moment(row.at, now),
        what,
    }
}
