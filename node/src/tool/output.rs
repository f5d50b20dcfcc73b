//! The output of a program: read by a thread for each stream, and kept up to a bound.

use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Output kept per program and stream, in bytes; further output is read and dropped.
pub const OUTPUT_MAX: usize = 16 << 20;
/// Longest wait for the end of the pipes after a program ended, because its daemons may keep the
/// pipes open.
const DRAIN: Duration = Duration::from_secs(2);

/// Whether a piece of output is redundant given the next piece. A piece runs from one carriage
/// return to the next; the next piece overwrites the line on the screen.
pub type Superseded = fn(&[u8], &[u8]) -> bool;

/// The kept part of a stream, up to a bound.
#[derive(Debug)]
pub(crate) struct Output {
    kept: Vec<u8>,
    truncated: bool,
    max: usize,
    superseded: Option<Superseded>,
    /// Start of the two newest pieces, each with its carriage return.
    newest: [Option<usize>; 2],
}

impl Output {
    pub(crate) fn new(max: usize, superseded: Option<Superseded>) -> Self {
        Self {
            kept: Vec::new(),
            truncated: false,
            max,
            superseded,
            newest: [None; 2],
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\r') {
            let room = self.max.saturating_sub(self.kept.len()).min(piece.len());
            self.kept.extend_from_slice(&piece[..room]);
            self.truncated |= room < piece.len();
            if let (Some(superseded), true) = (
                self.superseded,
                piece.ends_with(b"\r") && room == piece.len(),
            ) {
                self.end_piece(superseded);
            }
        }
    }

    /// Ends a piece and drops the piece before when superseded by the new piece.
    fn end_piece(&mut self, superseded: Superseded) {
        let end = self.kept.len() - 1;
        let [former, latest] = self.newest;
        self.newest = [latest, Some(end)];
        if let (Some(former), Some(latest)) = (former, latest)
            && superseded(&self.kept[former..latest], &self.kept[latest..end])
        {
            self.kept.drain(former..latest);
            self.newest = [Some(former), Some(end - (latest - former))];
        }
    }

    /// Returns the kept output, and whether the output was cut.
    pub(crate) fn take(&mut self) -> (Vec<u8>, bool) {
        let (max, superseded) = (self.max, self.superseded);
        let Self {
            kept, truncated, ..
        } = std::mem::replace(self, Self::new(max, superseded));
        (kept, truncated)
    }
}

/// One stream, read by its own thread.
#[derive(Debug)]
pub(super) struct Capture {
    seen: Arc<Mutex<Output>>,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    pub(super) fn start(
        pipe: Option<impl Read + Send + 'static>,
        superseded: Option<Superseded>,
    ) -> Self {
        let seen = Arc::new(Mutex::new(Output::new(OUTPUT_MAX, superseded)));
        let thread = pipe.map(|mut pipe| {
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || {
                let mut chunk = [0; 16 << 10];
                while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                    seen.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(&chunk[..count]);
                }
            })
        });
        Self { seen, thread }
    }

    /// Returns the output read until now.
    pub(super) fn so_far(&self) -> Vec<u8> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .kept
            .clone()
    }

    /// Waits for the stream's end, at most [`DRAIN`]; returns whether the end came.
    pub(super) fn await_end(&self) -> bool {
        let started = Instant::now();
        let open = || {
            self.thread
                .as_ref()
                .is_some_and(|thread| !thread.is_finished())
        };
        while open() && started.elapsed() < DRAIN {
            std::thread::sleep(Duration::from_millis(2));
        }
        !open()
    }

    /// Returns the output read, and whether the output was cut.
    pub(super) fn take(&mut self) -> (Vec<u8>, bool) {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}
