//! Console text of a node on the way to the server. The tape limits rate and size, keeps text until
//! the server confirms the report, and marks gaps. Secrets are removed here, because the agent sees
//! the text without cuts.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_core::clock::Clock;
use muster_core::consoles::{CHUNK_BYTES, filter_text};
use muster_core::redact::Stream;

/// Bytes accepted per second, also the maximum burst. A serial line at 115200 baud delivers 11 KiB
/// per second.
const RATE: usize = 64 << 10;
/// Maximum number of text bytes waiting for the server.
const KEPT_BYTES: usize = 64 << 10;
/// Maximum number of chunks waiting for the server. A slow console needs more than an hour to fill
/// them.
const KEPT_CHUNKS: usize = 512;
/// Time span of a chunk while the server is unreachable.
const SPAN: SignedDuration = SignedDuration::from_secs(10);
/// Bytes reserved in a chunk for the note about a gap.
const WORDS: usize = 256;

/// Console text not yet confirmed by the server.
#[derive(Debug)]
pub(super) struct Tape {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    chunks: VecDeque<(Timestamp, String)>,
    bytes: usize,
    /// Number of chunks ever removed from the front, reported or dropped. The value is also the
    /// number of the front chunk.
    front: u64,
    /// Bytes dropped from the front since the last confirmed report.
    dropped: u64,
    /// Whether text can still be appended to the latest chunk.
    open: bool,
    latest: Timestamp,
    /// The first bytes of a character with missing rest.
    partial: Vec<u8>,
    stream: Stream,
    allowance: Allowance,
    /// Bytes over the rate limit since the last note.
    refused: u64,
}

/// The part of a tape covered by a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// Number of the first chunk after the report.
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
            stream: Stream::default(),
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

    /// Appends bytes read from the console.
    pub(super) fn write(&self, bytes: &[u8]) {
        let now = self.clock.now();
        let mut state = self.lock();
        if !state.allowance.grants(bytes.len(), now) {
            state.refused += bytes.len() as u64;
            return;
        }
        state.note_refused(now);
        let text = state.decode(bytes);
        let text = state.stream.feed(&filter_text(&text));
        state.push(&text, now);
    }

    /// Adds a line written by Muster between the console text.
    pub(super) fn note(&self, words: &str) {
        let now = self.clock.now();
        self.lock().note(words, now);
    }

    /// Returns the next text to report, limited to `chunks` chunks and about `bytes` bytes. The
    /// text stays on the tape until [`Tape::told`].
    pub(super) fn report(&self, chunks: usize, bytes: usize) -> (Report, Vec<(Timestamp, String)>) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.note_refused(now);
        let prompt = state.stream.settle();
        state.push(&prompt, now);
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

    /// Removes the text of a confirmed report from the tape.
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
    /// Decodes bytes as text. Invalid UTF-8 becomes U+FFFD, and a character split between two reads
    /// is joined.
    fn decode(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        // At most three bytes can be the start of an incomplete character (RFC 3629).
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

    /// The line of the console goes on after the note, so that a secret around the note is removed
    /// as a whole.
    fn note(&mut self, words: &str, now: Timestamp) {
        let rest = self.stream.settle();
        self.push(&rest, now);
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
                // Timestamps are whole, strictly rising microseconds, even if the clock goes back.
                // The server recognises a repeated report by the timestamps.
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

/// Rate limit of a console. After an overrun, text is accepted again when half of the allowance is
/// refilled. The console text then has a single long gap instead of a hundred short gaps.
#[derive(Debug)]
struct Allowance {
    left: f64,
    since: Timestamp,
    exceeded: bool,
}

#[expect(clippy::cast_precision_loss, reason = "bytes of one second")]
impl Allowance {
    fn grants(&mut self, bytes: usize, now: Timestamp) -> bool {
        // A clock set back adds no allowance.
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
    fn a_secret_never_reaches_the_tape() {
        let (tape, _clock) = tape();
        tape.write(b"Command line: console=ttyS0 muster.nonce=0123456789");
        let (report, first) = tape.report(9, 9999);
        tape.told(&report);
        tape.write(b"abcdef quiet\r\n-----BEGIN OPENSSH PRIVATE KEY-----\r\nb3Blbn");
        tape.note("the console is lost");
        tape.write(b"c0sZ\r\n-----END OPENSSH PRIVATE KEY-----\r\nn1 login: ");
        let all = first[0].1.clone() + &texts(&tape).concat();
        assert_eq!(
            all,
            "Command line: console=ttyS0 muster.nonce=[removed] quiet\r\n[removed]\r\n\r\n\
             [muster: the console is lost]\r\n[removed]\r\n[removed]\r\nn1 login: "
        );
    }

    #[test]
    fn a_secret_around_a_note_never_reaches_the_tape() {
        for (before, after, told) in [
            (
                "password=hun",
                "ter2 user=root\r\n",
                "password=[removed]|user=root",
            ),
            ("nonce=", "0011 quiet\r\n", "nonce=|[removed] quiet"),
            (
                "at https://root:cal",
                "vin@10.0.0.1/x\r\n",
                "at https://|root:[removed]@10.0.0.1/x",
            ),
            ("login: ", "root\r\n", "login: |root"),
        ] {
            let (tape, _clock) = tape();
            tape.write(before.as_bytes());
            tape.note("the console is lost");
            tape.write(after.as_bytes());
            let (shown, rest) = told.split_once('|').unwrap();
            let all = texts(&tape).concat();
            let note = "\r\n[muster: the console is lost]\r\n";
            let (first, second) = all.split_once(note).unwrap();
            assert_eq!((first, second.trim()), (shown, rest), "{before}");
        }
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
