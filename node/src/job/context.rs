//! What a running job is given: a place for its lines, its deadline, and the word that it was cancelled.

use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use muster_core::clock::Clock;
use muster_core::wire::node::{Failure, FailureCode, Line, Progress};

use super::spool::Spool;
use crate::failure::{fatal, retryable};

/// Longest text of one line; what is over it is cut, so that a chatty tool cannot fill the spool with one line.
const TEXT_MAX: usize = 4096;

/// Bytes of lines one job may write; over that only its challenges and its result are kept. A day of progress lines is a tenth of it.
const SPOOL_MAX: u64 = 128 << 20;

/// A job's surroundings. All methods take `&self`, so that threads of one job can share it.
#[derive(Debug)]
pub struct JobContext {
    sink: Sink,
    clock: Clock,
    started: Instant,
    timeout: Duration,
    spool: Option<Spool>,
    /// Whether something runs that must not be cut; see [`Self::uncut`].
    uncut: AtomicBool,
}

/// Where a job's lines go.
#[derive(Debug)]
enum Sink {
    /// The spool's append-only lines file.
    Spool(File),
    /// Plain text for a person, when a verb runs by hand.
    Stderr,
}

/// Adds a log line to a spool from outside its process.
///
/// # Errors
/// `io`.
pub fn note(spool: &Spool, text: &str) -> Result<(), Failure> {
    JobContext::spooled(spool, Duration::ZERO).map(|cx| cx.log(text))
}

impl JobContext {
    /// For a job with a spool; its deadline is `timeout` from now.
    ///
    /// # Errors
    /// `io` when its lines cannot be opened.
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

    /// For a verb that runs by hand or in a test: progress goes to stderr, and nothing cancels it but its deadline.
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

    /// The job's folder; none when run by hand.
    pub fn spool(&self) -> Option<&Spool> {
        self.spool.as_ref()
    }

    /// The wall clock, for the times in lines and evidence.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How far a step is: `done` of `total` in `unit`s, or a message alone.
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

    /// A line of log for the node's timeline. Never put a secret here.
    pub fn log(&self, text: &str) {
        self.emit(&Line::Log {
            at: self.clock.now(),
            text: capped(text),
        });
    }

    /// Does what leaves the node broken where it is cut, such as dpkg's work: until it ends nobody is told of a cancellation, and only the deadline counts.
    pub fn uncut<T>(&self, act: impl FnOnce() -> T) -> T {
        self.uncut.store(true, Ordering::SeqCst);
        let done = act();
        self.uncut.store(false, Ordering::SeqCst);
        done
    }

    /// Whether somebody asked this job to stop, and it may.
    pub fn cancelled(&self) -> bool {
        !self.uncut.load(Ordering::SeqCst)
            && self
                .spool
                .as_ref()
                .is_some_and(|spool| spool.cancel().exists())
    }

    /// When the whole job must have ended, on the node's own monotonic clock.
    pub fn deadline(&self) -> Instant {
        self.started + self.timeout
    }

    /// Time left until [`JobContext::deadline`]; zero when it has passed.
    pub fn remaining(&self) -> Duration {
        self.timeout.saturating_sub(self.started.elapsed())
    }

    /// To be called between steps and inside loops.
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

    /// Writes one line in one `write`, so that a reader never sees half of it mixed with another. A line that cannot be written does not end the
    /// work; the result's is looked after by [`JobContext::finish`].
    pub fn emit(&self, line: &Line) {
        let full = match &self.sink {
            Sink::Spool(file) => file.metadata().is_ok_and(|seen| seen.len() > SPOOL_MAX),
            Sink::Stderr => false,
        };
        if !full || matches!(line, Line::Challenge(_)) {
            let _ = self.write(line);
        }
    }

    /// Writes the last line and makes it durable.
    ///
    /// # Errors
    /// What the file system said.
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

/// A line as a person reads it in a terminal.
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
