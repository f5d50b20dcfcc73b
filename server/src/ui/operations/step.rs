//! A job in readable form.

use jiff::Timestamp;

use super::progress::{self, Progress};
use crate::db::operations::StepRow;
use crate::ui::chips::{self, Chip};
use crate::ui::format::{self, Moment, member};

pub(in crate::ui) struct Step {
    pub job: String,
    pub title: String,
    pub chip: Chip,
    pub at: Moment,
    /// Duration of the step. A running step counts up to now.
    pub duration: String,
    /// Attempt and round, such as `attempt 2, round 3`. Empty for the first attempt of the first
    /// round.
    pub tries: String,
    pub running: bool,
    pub waiting: String,
    pub progress: Option<Progress>,
    pub failure: String,
    /// Whether a log exists that the reader may read. A step never taken by an agent has no log.
    pub has_log: bool,
}

impl Step {
    /// Keeps the link to the log only for a reader with the right to raw text.
    pub(in crate::ui) fn with_log(self, is_raw: bool) -> Self {
        Self {
            has_log: self.has_log && is_raw,
            ..self
        }
    }
}

pub(in crate::ui) fn render_step(row: StepRow, now: Timestamp) -> Step {
    let running = row.state.is_open();
    let started = row.started_at.map(|at| at.to_jiff());
    let finished = row.finished_at.map(|at| at.to_jiff());
    let duration = started.map(|at| format::duration(finished.unwrap_or(now).duration_since(at)));
    let mut tries = Vec::new();
    if row.attempt > 1 {
        tries.push(format!("attempt {}", row.attempt));
    }
    if row.round > 1 {
        tries.push(format!("round {}", row.round));
    }
    Step {
        job: row.job.to_string(),
        progress: progress::read_report(&row, now).filter(|_| running),
        title: row.step.title().to_owned(),
        chip: chips::outcome(row.state.as_str()),
        at: format::moment(started.unwrap_or(row.created_at), now),
        duration: duration.unwrap_or_default(),
        tries: tries.join(", "),
        running,
        waiting: row
            .waiting_for
            .filter(|_| running)
            .map(|text| format::cut(&text, 200))
            .unwrap_or_default(),
        failure: row
            .failure
            .as_ref()
            .map(|failure| format::cut(member(failure, "message"), 600))
            .unwrap_or_default(),
        has_log: row.attempt > 0,
    }
}
