//! Segments of the history as files: a line of JSON for each seal, followed by a line for each
//! covered event. A file is verified with SHA-256 alone, as docs/audit.md describes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::audit::Seal;
use muster_core::values::Digest;
use serde::{Deserialize, Serialize};

use crate::db::seals::{EntryRow, SealRow};

/// A seal of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealLine {
    number: i64,
    /// 64 hex digits.
    previous: String,
    /// 64 hex digits.
    hash: String,
    sealed_at: Timestamp,
    /// Number of the lines that follow with events.
    events: usize,
}

/// A line of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Seal(SealLine),
    Event(Box<EntryRow>),
}

/// The history differs from its seals, or a file differs from its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differs {
    /// Number of the seal; for a file that cannot be parsed, the seal before.
    pub seal: i64,
}

impl std::fmt::Display for Differs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the events of seal {} differ from the seal: see `muster audit verify`",
            self.seal
        )
    }
}

impl std::error::Error for Differs {}

/// A verified file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Number and hash of each seal.
    pub seals: BTreeMap<i64, [u8; 32]>,
    /// The seal before the first.
    pub previous: [u8; 32],
    pub events: i64,
}

/// Writes the text of a file. The events are compared with the seals first, so a changed history is
/// never exported as sound.
///
/// # Errors
///
/// When an event or a seal differs.
pub fn render(rows: &[SealRow], entries: Vec<EntryRow>) -> Result<String, Differs> {
    let mut text = String::new();
    let mut entries = entries.into_iter();
    for row in rows {
        let differs = Differs { seal: row.number };
        let seal = row.seal().ok_or(differs)?;
        let own: Vec<EntryRow> = entries.by_ref().take(seal.events.len()).collect();
        push(&mut text, &Line::Seal(line_of(row, seal.events.len()))).ok_or(differs)?;
        for entry in own {
            push(&mut text, &Line::Event(Box::new(entry))).ok_or(differs)?;
        }
    }
    // The file is read back, so an exported file is a readable file.
    let checked = check(&text)?;
    let first = rows.first().map_or(0, |row| row.number);
    let other = rows.iter().find(|row| {
        let hash = checked.seals.get(&row.number);
        hash.is_none_or(|hash| hash[..] != row.hash[..])
    });
    let has_more = entries.next().is_some();
    match (other, has_more) {
        (Some(row), _) => Err(Differs { seal: row.number }),
        (None, true) => Err(Differs { seal: first }),
        (None, false) => Ok(text),
    }
}

fn line_of(row: &SealRow, events: usize) -> SealLine {
    SealLine {
        number: row.number,
        previous: hex::encode(&row.previous),
        hash: hex::encode(&row.hash),
        sealed_at: row.sealed_at,
        events,
    }
}

fn push(text: &mut String, line: &Line) -> Option<()> {
    text.push_str(&serde_json::to_string(line).ok()?);
    text.push('\n');
    Some(())
}

/// Verifies the text of a file: each seal covers the events that follow, and the seal before.
///
/// # Errors
///
/// When a line cannot be parsed, or an event or a seal differs.
pub fn check(text: &str) -> Result<Checked, Differs> {
    let mut lines = text.lines();
    let mut checked: Option<Checked> = None;
    let mut last = 0;
    while let Some(line) = lines.next() {
        let unreadable = Differs { seal: last };
        let Ok(Line::Seal(line)) = serde_json::from_str(line) else {
            return Err(unreadable);
        };
        let differs = Differs { seal: line.number };
        let mut events = Vec::new();
        for _ in 0..line.events {
            let event = lines
                .next()
                .and_then(|line| serde_json::from_str(line).ok());
            let Some(Line::Event(entry)) = event else {
                return Err(differs);
            };
            events.push((entry.seq, entry.digest()));
        }
        let count = i64::try_from(events.len()).map_err(|_| differs)?;
        let seal = Seal {
            number: line.number,
            previous: hash_of(&line.previous).ok_or(differs)?,
            sealed_at: line.sealed_at,
            events,
        };
        let hash = seal.hash();
        if hash_of(&line.hash) != Some(hash) {
            return Err(differs);
        }
        let known = checked.get_or_insert_with(|| Checked {
            seals: BTreeMap::new(),
            previous: seal.previous,
            events: 0,
        });
        let continues = match known.seals.last_key_value() {
            None => true,
            Some((number, hash)) => number + 1 == seal.number && *hash == seal.previous,
        };
        if !continues {
            return Err(differs);
        }
        known.seals.insert(seal.number, hash);
        known.events += count;
        last = line.number;
    }
    checked.ok_or(Differs { seal: last })
}

fn hash_of(text: &str) -> Option<[u8; 32]> {
    hex::decode(text).ok()?.try_into().ok()
}

/// Returns the SHA-256 of a file's text.
pub fn digest_of(text: &str) -> [u8; 32] {
    Digest::of(text.as_bytes()).0
}
