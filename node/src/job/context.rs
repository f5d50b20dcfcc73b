//! The surroundings of a running job: a sink for its lines, its deadline, and its cancellation.

use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use muster_core::clock::Clock;
use muster_core::wire::node::{Failure, FailureCode, Line, Progress};

use super::spool::Spool;
use crate::failure::{fatal, retryable};

/// Longest text of one line, in characters. Longer text is cut, so that a chatty tool cannot fill
/// the spool with one line.
const TEXT_MAX: usize = 4096;

/// Bytes of lines per job. Above this size only challenges and the result are written. A day of
/// progress lines takes a tenth of the limit.
const SPOOL_MAX: u64 = 128 << 20;

/// A job's surroundings. All methods take `&self`, so that threads of one job can share the
/// context.
#[derive(Debug)]
pub struct JobContext {
    sink: Sink,
    clock: Clock,
    started: Instant,
    timeout: Duration,
    spool: Option<Spool>,
    /// Whether uninterruptible work is running; see [`Self::uncut`].
    uncut: AtomicBool,
}

/// The destination of a job's lines.
#[derive(Debug)]
enum Sink {
    /// The spool's append-only lines file.
    Spool(File),
    /// Plain text for a person, when a verb runs by hand.
    Stderr,
}

/// Adds a log line to a spool from outside of the job's process.
///
/// # Errors
/// `io`.
pub fn note(spool: &Spool, text: &str) -> Result<(), Failure> {
    JobContext::spooled(spool, Duration::ZERO).map(|cx| cx.log(text))
}

impl JobContext {
    /// Builds the context of a job with a spool; the deadline is `timeout` from now.
    ///
    /// # Errors
    /// `io` when the lines file cannot be opened.
    pub fn spooled(spool: &Spool, timeout: Duration) -> Result<Self, Failure> {
        let (sink, spool) = (Sink::Spool(spool.append()?), Some(spool.clone()));
        Ok(Self {
            sink,
            clock: Clock::System,
            started: Instant::now(),
            timeout,
            spool,
            uncut: AtomicBool::new(false),
        })
    }

    /// Builds the context of a verb run by hand or by a test: progress goes to stderr, and only the
    /// deadline stops the work.
    pub fn foreground(timeout: Duration) -> Self {
        Self {
            sink: Sink::Stderr,
            clock: Clock::System,
            started: Instant::now(),
            timeout,
            spool: None,
            uncut: AtomicBool::new(false),
        }
    }

    /// The job's folder; `None` when run by hand.
    pub fn spool(&self) -> Option<&Spool> {
        self.spool.as_ref()
    }

    /// The wall clock, for the times in lines and evidence.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Reports the progress of a step: `done` of `total` in `unit`s, or a message alone.
    pub fn progress(
        &self,
        message: &str,
        done: Option<u64>,
        total: Option<u64>,
        unit: Option<&str>,
    ) {
        let unit = unit.map(str::to_owned);
        self.emit(&Line::Progress(Progress {
            at: self.clock.now(),
            message: capped(message),
            done,
            total,
            unit,
        }));
    }

    /// Writes a log line for the node's timeline. Never log a secret.
    pub fn log(&self, text: &str) {
        self.emit(&Line::Log {
            at: self.clock.now(),
            text: capped(text),
        });
    }

    /// Runs work that breaks the node when interrupted, such as dpkg. Until the work ends,
    /// [`Self::cancelled`] returns false; only the deadline counts.
    pub fn uncut<T>(&self, act: impl FnOnce() -> T) -> T {
        self.uncut.store(true, Ordering::SeqCst);
        let done = act();
        self.uncut.store(false, Ordering::SeqCst);
        done
    }

    /// Whether the job was asked to stop and may stop now.
    pub fn cancelled(&self) -> bool {
        !self.uncut.load(Ordering::SeqCst)
            && self
                .spool
                .as_ref()
                .is_some_and(|spool| spool.cancel().exists())
    }

    /// End of the whole job, on the node's own monotonic clock.
    pub fn deadline(&self) -> Instant {
        self.started + self.timeout
    }

    /// Time left until [`JobContext::deadline`]; zero after the deadline.
    pub fn remaining(&self) -> Duration {
        self.timeout.saturating_sub(self.started.elapsed())
    }

    /// Checks for cancellation and deadline. Call between steps and inside loops.
    ///
    /// # Errors
    /// `cancelled` or `deadline`, when the job must stop.
    pub fn check(&self) -> Result<(), Failure> {
        if self.cancelled() {
            return Err(fatal(FailureCode::Cancelled, "the job was cancelled"));
        }
        if self.remaining().is_zero() {
            return Err(retryable(
                FailureCode::Deadline,
                format!(
                    "the job's deadline of {} s has passed",
                    self.timeout.as_secs()
                ),
            ));
        }
        Ok(())
    }

    /// Writes one line in one `write`, so that a reader never sees two lines mixed. A failed write
    /// does not end the work; [`JobContext::finish`] returns the failure for the result line.
    pub fn emit(&self, line: &Line) {
        let full = match &self.sink {
            Sink::Spool(file) => file.metadata().is_ok_and(|seen| seen.len() > SPOOL_MAX),
            Sink::Stderr => false,
        };
        if !full || matches!(line, Line::Challenge(_)) {
            let _ = self.write(line);
        }
    }

    /// Writes the last line and makes the file durable.
    ///
    /// # Errors
    /// Returns the file system's error.
    pub fn finish(&self, line: &Line) -> std::io::Result<()> {
        self.write(line)?;
        match &self.sink {
            Sink::Spool(file) => file.sync_all(),
            Sink::Stderr => Ok(()),
        }
    }

    fn write(&self, line: &Line) -> std::io::Result<()> {
        match &self.sink {
            Sink::Spool(file) => {
                let mut bytes = serde_json::to_vec(line)?;
                bytes.push(b'\n');
                (&mut &*file).write_all(&bytes)
            }
            Sink::Stderr => writeln!(std::io::stderr(), "{}", plain(line)),
        }
    }
}

/// Formats a line for a person at a terminal.
fn plain(line: &Line) -> String {
    match line {
        Line::Progress(Progress {
            message,
            done: Some(done),
            total: Some(total),
            unit,
            ..
        }) => {
            format!(
                "{message}: {done}/{total} {}",
                unit.as_deref().unwrap_or_default()
            )
        }
        Line::Progress(Progress { message, .. }) => message.clone(),
        Line::Log { text, .. } => text.clone(),
        Line::Challenge(challenge) => format!("waits for permit {}", challenge.permit),
        Line::Result { result, .. } => serde_json::to_string(result).unwrap_or_default(),
    }
}

fn capped(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || *c == '\t')
        .take(TEXT_MAX)
        .collect()
}
