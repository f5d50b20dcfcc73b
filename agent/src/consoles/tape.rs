//! One console's text on its way to the server: bounded in rate and in size, kept until the server has it, and saying where it has gaps.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_core::clock::Clock;
use muster_core::consoles::{CHUNK_BYTES, kept};

/// Bytes a second, and at once: a serial line at 115200 baud brings 11 KiB a second.
const RATE: usize = 64 << 10;
/// Bytes of text that wait for the server.
const KEPT_BYTES: usize = 64 << 10;
/// Chunks that wait for the server: of a console that trickles, more than an hour.
const KEPT_CHUNKS: usize = 512;
/// Time that one chunk spans while the server is away.
const SPAN: SignedDuration = SignedDuration::from_secs(10);
/// Room in a chunk for the words about a gap.
const WORDS: usize = 256;

/// What is written and not told yet.
#[derive(Debug)]
pub(super) struct Tape {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    chunks: VecDeque<(Timestamp, String)>,
    bytes: usize,
    /// Chunks ever taken from the front, told or dropped: the number of the front chunk.
    front: u64,
    /// Bytes dropped from the front since this was last told.
    dropped: u64,
    /// The latest chunk may still grow.
    open: bool,
    latest: Timestamp,
    /// The beginning of a character whose rest has not come.
    partial: Vec<u8>,
    allowance: Allowance,
    /// Bytes not taken since this was last noted.
    refused: u64,
}

/// How far a report goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// Number of the first chunk it does not carry.
    end: u64,
    dropped: u64,
}

impl Tape {
    pub(super) fn new(clock: Clock) -> Self {
        let state = State {
            chunks: VecDeque::new(),
            bytes: 0,
            front: 0,
            dropped: 0,
            open: false,
            latest: Timestamp::UNIX_EPOCH,
            partial: Vec::new(),
            allowance: Allowance {
                left: 0.0,
                since: Timestamp::UNIX_EPOCH,
                exceeded: false,
            },
            refused: 0,
        };
        Self {
            clock,
            state: Mutex::new(state),
        }
    }

    /// What was read from the console.
    pub(super) fn write(&self, bytes: &[u8]) {
        let now = self.clock.now();
        let mut state = self.lock();
        if !state.allowance.grants(bytes.len(), now) {
            state.refused += bytes.len() as u64;
            return;
        }
        state.note_refused(now);
        let text = state.decode(bytes);
        state.push(&kept(&text), now);
    }

    /// A line of our own between the console's.
    pub(super) fn note(&self, words: &str) {
        let now = self.clock.now();
        self.lock().note(words, now);
    }

    /// The next text to tell, in at most so many chunks and about so many bytes. It stays here until [`Tape::told`].
    pub(super) fn report(&self, chunks: usize, bytes: usize) -> (Report, Vec<(Timestamp, String)>) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.note_refused(now);
        state.open = false;
        let mut size = 0;
        let within = |(_, text): &&(Timestamp, String)| {
            let fits = size < bytes;
            size += text.len();
            fits
        };
        let mut told: Vec<(Timestamp, String)> = state
            .chunks
            .iter()
            .take(chunks)
            .take_while(within)
            .cloned()
            .collect();
        if let Some((_, first)) = told.first_mut()
            && state.dropped > 0
        {
            first.insert_str(
                0,
                &note(&format!(
                    "{} bytes were dropped: the server was away",
                    state.dropped
                )),
            );
        }
        (
            Report {
                end: state.front + told.len() as u64,
                dropped: state.dropped,
            },
            told,
        )
    }

    /// The report arrived: what it carried need not be told again.
    pub(super) fn told(&self, report: &Report) {
        let mut state = self.lock();
        while state.front < report.end
            && let Some((_, text)) = state.chunks.pop_front()
        {
            state.bytes -= text.len();
            state.front += 1;
        }
        state.dropped -= report.dropped;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Bytes as text; what is no UTF-8 becomes U+FFFD, and a character that reads cut in two is put together.
    fn decode(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        // At most three bytes may be the beginning of a character (RFC 3629).
        for cut in (all.len().saturating_sub(3)..all.len()).rev() {
            if std::str::from_utf8(&all[cut..])
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
            {
                self.partial = all.split_off(cut);
                break;
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    fn note_refused(&mut self, now: Timestamp) {
        match std::mem::take(&mut self.refused) {
            0 => {}
            refused => self.note(
                &format!("{refused} bytes were dropped: more than {RATE} in a second"),
                now,
            ),
        }
    }

    fn note(&mut self, words: &str, now: Timestamp) {
        self.push(&note(words), now);
    }

    fn push(&mut self, text: &str, now: Timestamp) {
        if text.is_empty() {
            return;
        }
        self.bytes += text.len();
        match self.chunks.back_mut() {
            Some((at, latest))
                if self.open
                    && latest.len() + text.len() + WORDS <= CHUNK_BYTES
                    && now.duration_since(*at) < SPAN =>
            {
                latest.push_str(text);
            }
            _ => {
                // Whole microseconds that rise are what makes a report that is told twice recognisable, whatever the clock does.
                let whole = Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now);
                self.latest = whole.max(self.latest + Duration::from_micros(1));
                self.chunks.push_back((self.latest, text.to_owned()));
                self.open = true;
            }
        }
        while (self.bytes > KEPT_BYTES || self.chunks.len() > KEPT_CHUNKS)
            && let Some((_, text)) = self.chunks.pop_front()
        {
            self.bytes -= text.len();
            self.dropped += text.len() as u64;
            self.front += 1;
        }
    }
}

fn note(words: &str) -> String {
    format!("\r\n[muster: {words}]\r\n")
}

/// How much may be taken now. A console that went beyond it is heard again once half of it is back, so that its text has one long gap and
/// not a hundred short ones.
#[derive(Debug)]
struct Allowance {
    left: f64,
    since: Timestamp,
    exceeded: bool,
}

#[expect(clippy::cast_precision_loss, reason = "bytes of one second")]
impl Allowance {
    fn grants(&mut self, bytes: usize, now: Timestamp) -> bool {
        // A clock that was set back brings nothing.
        let refill = now.duration_since(self.since).as_secs_f64().max(0.0) * RATE as f64;
        (self.left, self.since) = ((self.left + refill).min(RATE as f64), now);
        self.exceeded = match self.exceeded {
            true => self.left < RATE as f64 / 2.0,
            false => self.left < bytes as f64,
        };
        if !self.exceeded {
            self.left -= bytes as f64;
        }
        !self.exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tape() -> (Tape, Clock) {
        let clock = Clock::manual("2026-01-05T08:00:00Z".parse().unwrap());
        (Tape::new(clock.clone()), clock)
    }

    fn texts(tape: &Tape) -> Vec<String> {
        tape.report(usize::MAX, usize::MAX)
            .1
            .into_iter()
            .map(|(_, text)| text)
            .collect()
    }

    #[test]
    fn text_is_told_in_order_until_it_arrived() {
        let (tape, _clock) = tape();
        tape.write("caf\u{e9} \0\u{8}ok\r\n".as_bytes());
        let cut = "\u{20ac}".as_bytes();
        tape.write(&cut[..2]);
        tape.write(&[cut[2], 0xff, b'!']);
        let (report, first) = tape.report(9, 9999);
        assert_eq!(first[0].1, "caf\u{e9} ok\r\n\u{20ac}\u{fffd}!");
        tape.write(b"more");
        let (_, again) = tape.report(9, 9999);
        assert_eq!(again[0], first[0], "what is told does not change any more");
        assert!(
            again[1].0 > again[0].0,
            "and times rise on a clock that stands still"
        );
        tape.told(&report);
        assert_eq!(texts(&tape), ["more"]);
    }

    #[test]
    fn a_server_that_is_away_costs_the_oldest_text() {
        let (tape, clock) = tape();
        for n in 0..200 {
            tape.write(format!("{n:>1023}\n").as_bytes());
            clock.advance(SignedDuration::from_secs(1));
        }
        let (report, told) = tape.report(usize::MAX, usize::MAX);
        let all: String = told.iter().map(|(_, text)| text.as_str()).collect();
        assert!(
            all.len() <= KEPT_BYTES + WORDS && all.ends_with("199\n"),
            "{}",
            all.len()
        );
        assert!(
            all.starts_with("\r\n[muster: 14")
                && told.iter().all(|(_, text)| text.len() <= CHUNK_BYTES)
        );
        tape.told(&report);
        assert_eq!(texts(&tape), [""; 0]);
        tape.write(b"x");
        assert_eq!(texts(&tape), ["x"], "and the gap is told once");
    }

    #[test]
    fn a_flood_is_cut_and_the_gap_is_noted() {
        let (tape, clock) = tape();
        let mut all = String::new();
        for _ in 0..1000 {
            tape.write(&[b'x'; 1024]);
            clock.advance(SignedDuration::from_millis(1));
            let (report, told) = tape.report(usize::MAX, usize::MAX);
            all.extend(told.into_iter().map(|(_, text)| text));
            tape.told(&report);
        }
        clock.advance(SignedDuration::from_secs(1));
        tape.write(b"end");
        all.push_str(&texts(&tape).concat());
        let taken = all.matches('x').count();
        assert!((RATE..=2 * RATE).contains(&taken), "{taken}");
        assert!(
            all.contains("bytes were dropped: more than 65536 in a second]")
                && all.ends_with("end")
        );
    }

    #[test]
    fn a_report_is_bounded() {
        let (tape, _clock) = tape();
        for _ in 0..7 {
            tape.write(&[b'x'; 2048]);
        }
        assert_eq!(tape.report(1, usize::MAX).1.len(), 1);
        assert_eq!(tape.report(9, 1).1.len(), 1);
        assert_eq!(tape.report(9, 0).1.len(), 0);
    }
}
