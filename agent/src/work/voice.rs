//! The status of a running job: progress, log lines and the awaited condition. The status is kept
//! in memory with limits, until the next renewal sends it to the server.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_core::clock::Clock;
use muster_core::redact::Redactor;
use muster_core::wire::calls::LogLine;
use muster_core::wire::node::Progress;
use tokio::sync::Notify;

/// Maximum number of log lines between two renewals. The oldest lines are dropped first.
const LOG_LINES: usize = 1000;
/// Maximum number of log lines per renewal.
const BATCH_LINES: usize = 500;
/// Maximum length of a line or condition in bytes.
const TEXT_BYTES: usize = 4 << 10;

/// The status of a job.
#[derive(Debug)]
pub struct Voice {
    clock: Clock,
    said: Mutex<Said>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Said {
    progress: Option<Progress>,
    waiting_for: Option<String>,
    log: VecDeque<LogLine>,
    /// Number of lines ever removed from the front, reported or dropped. The value is also the
    /// number of the front line.
    front: u64,
    /// Lines dropped since the last confirmed report.
    dropped: u64,
    /// Removes secrets from the lines.
    redactor: Redactor,
}

/// The content of a renewal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Latest progress.
    pub progress: Option<Progress>,
    /// Awaited condition, `None` while the job acts.
    pub waiting_for: Option<String>,
    /// Next log lines, at most 500, after a note about dropped lines.
    pub log: Vec<LogLine>,
    /// Number of the first line after the report.
    end: u64,
    dropped: u64,
}

impl Voice {
    /// Creates an empty status.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            said: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Adds a line to the log of the job, with the time of the agent.
    pub fn log(&self, text: impl Into<String>) {
        self.log_at(LogLine {
            at: self.clock.now(),
            text: text.into(),
        });
    }

    /// Adds a line to the log of the job, with the time of the author.
    pub fn log_at(&self, line: LogLine) {
        let LogLine { at, text } = line;
        let mut said = self.lock();
        let text = shortened(said.redactor.redact(&text));
        if said.log.len() >= LOG_LINES {
            said.log.pop_front();
            said.front += 1;
            said.dropped += 1;
        }
        said.log.push_back(LogLine { at, text });
        drop(said);
        self.changed.notify_one();
    }

    /// Sets the progress of the job. Only the latest progress is kept.
    pub fn progress(&self, progress: Progress) {
        let Progress {
            at,
            message,
            done,
            total,
            unit,
        } = progress;
        self.lock().progress = Some(Progress {
            at,
            message: shortened(message),
            done,
            total,
            unit: unit.map(shortened),
        });
        self.changed.notify_one();
    }

    /// Sets the awaited condition of the job as a noun phrase: `SSH on n1`. Readers put the verb in
    /// front.
    pub fn waiting_for(&self, thing: impl Into<String>) {
        let thing = Some(shortened(thing.into()));
        let mut said = self.lock();
        if said.waiting_for != thing {
            said.waiting_for = thing;
            drop(said);
            self.changed.notify_one();
        }
    }

    /// Clears the awaited condition, because the job continues.
    pub fn moving(&self) {
        if self.lock().waiting_for.take().is_some() {
            self.changed.notify_one();
        }
    }

    /// Returns the awaited condition.
    pub fn awaited(&self) -> Option<String> {
        self.lock().waiting_for.clone()
    }

    /// Waits until the status changes.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the content of the next renewal: the current state and the next log lines. The lines
    /// are kept until [`Voice::told`].
    pub fn report(&self) -> Report {
        let said = self.lock();
        let Said { dropped, front, .. } = *said;
        let gap = (dropped > 0).then(|| LogLine {
            at: self.clock.now(),
            text: format!("… {dropped} older lines were dropped here"),
        });
        let batch = said.log.iter().take(BATCH_LINES);
        Report {
            progress: said.progress.clone(),
            waiting_for: said.waiting_for.clone(),
            end: front + batch.len() as u64,
            log: gap.into_iter().chain(batch.cloned()).collect(),
            dropped,
        }
    }

    /// Removes the lines of a confirmed report.
    pub fn told(&self, report: &Report) {
        let mut said = self.lock();
        let told = report
            .end
            .saturating_sub(said.front)
            .min(said.log.len() as u64);
        said.log
            .drain(..usize::try_from(told).expect("no more than the log's length"));
        said.front += told;
        said.dropped -= report.dropped;
        if !said.log.is_empty() {
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > TEXT_BYTES {
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted_and_a_lost_renewal_loses_nothing() {
        let voice = Voice::new(Clock::System);
        for n in 0..LOG_LINES + 7 {
            voice.log(format!("line {n}"));
        }
        let first = voice.report();
        assert_eq!(first.log[0].text, "… 7 older lines were dropped here");
        assert_eq!(first.log[1].text, "line 7");
        assert_eq!(
            voice.report().log[1..],
            first.log[1..],
            "a renewal that did not arrive loses nothing"
        );
        voice.log("one more drops one more");
        voice.told(&first);
        assert_eq!(
            voice.report().log[0].text,
            "… 1 older lines were dropped here"
        );
        voice.told(&voice.report());
        assert_eq!(
            voice.report().log.len(),
            1,
            "and told lines are not told again"
        );
    }

    #[test]
    fn a_long_line_is_cut_at_a_character() {
        let voice = Voice::new(Clock::System);
        voice.log("ä".repeat(TEXT_BYTES));
        assert_eq!(
            voice.report().log[0].text.chars().count(),
            TEXT_BYTES / 2 + 1
        );
    }
}
