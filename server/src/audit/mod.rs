//! Verifies the history against the seals. Reads every seal and every sealed event, and compares
//! the seals with the anchors written outside the database. The check writes no rows and trusts no
//! stored value.

pub mod segments; // Segments of the history as files

mod removed; // Removed segments

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use muster_core::audit::BEGINNING;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use self::removed::Segments;
use crate::db;
use crate::db::seals::SealRow;
use crate::error::Error;

/// Seals of one read.
const PAGE: i64 = 50;
/// Most findings listed in a report. Further findings are only counted.
const TOLD: usize = 100;

/// A seal as written outside the database, one line of JSON each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    pub number: i64,
    /// The last event covered by the seal.
    pub last_seq: i64,
    /// 64 hex digits.
    pub hash: String,
    /// Time of writing the anchor.
    pub at: Timestamp,
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The stored event differs from the sealed event.
    EventChanged,
    /// A sealed event is missing.
    EventRemoved,
    /// An unsealed event lies between sealed events.
    EventAdded,
    /// A seal is missing, though a later seal exists.
    SealRemoved,
    /// The hash of the seal does not match the seal's content, or the link to the previous seal is
    /// broken.
    SealChanged,
    /// An anchored seal is missing, and the database ends before the seal, or ends with a removed
    /// segment: the history was truncated.
    Truncated,
    /// The stored seal differs from the anchored seal.
    AnchorDiffers,
    /// A line of the anchors cannot be parsed.
    AnchorUnreadable,
    /// The exported file of a removed segment is missing.
    ExportMissing,
    /// The exported file of a removed segment differs from the removed segment.
    ExportDiffers,
}

/// A difference found by the check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub fault: Fault,
    /// Number of the seal. For an unreadable anchor, the line number in the file.
    pub seal: i64,
    /// Number of the event, for findings about an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
}

/// Result of a check of the whole history.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Whether the check found no fault.
    pub whole: bool,
    pub seals: i64,
    /// Events covered by the seals.
    pub events: i64,
    /// Removed segments, and their events. Without the exported files, the chain proves only that
    /// the events before and after a segment are complete.
    pub removed_segments: i64,
    pub removed_events: i64,
    /// Removed segments whose exported files were compared.
    pub exports: i64,
    /// Count of events too new for a seal, and the time of the first such event. An age of minutes
    /// means that sealing has stopped.
    pub unsealed: i64,
    pub unsealed_since: Option<Timestamp>,
    /// The hash of the newest seal.
    pub head: Option<String>,
    /// Count of the compared anchors.
    pub anchors: i64,
    pub found: i64,
    /// The first hundred findings.
    pub findings: Vec<Finding>,
}

impl Report {
    fn add(&mut self, fault: Fault, seal: i64, seq: Option<i64>) {
        self.found += 1;
        if self.findings.len() < TOLD {
            self.findings.push(Finding { fault, seal, seq });
        }
    }

    /// Adds the missing seals from a number up to the next seal.
    fn skip(&mut self, from: i64, next: i64) {
        (from..next)
            .take(TOLD)
            .for_each(|gone| self.add(Fault::SealRemoved, gone, None));
    }

    /// Compares a seal with its anchors.
    fn compare(&mut self, wanted: &mut Wanted<'_>, number: i64, hash: &[u8]) {
        for anchor in wanted.remove(&number).unwrap_or_default() {
            self.anchors += 1;
            if anchor.hash != hex::encode(hash) {
                self.add(Fault::AnchorDiffers, number, None);
            }
        }
    }
}

/// Reads the anchors of a file. A seal may occur more than once. A last line without a newline is
/// skipped, because a replica may have died while writing.
///
/// # Errors
///
/// When the file cannot be read.
pub fn read_anchors(path: &Path) -> anyhow::Result<Vec<Result<Anchor, i64>>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("read the anchors {}", path.display()))?;
    let lines = text
        .split_inclusive('\n')
        .zip(1..)
        .filter(|(line, _)| line.ends_with('\n'));
    Ok(lines
        .map(|(line, number)| serde_json::from_str(line).map_err(|_| number))
        .collect())
}

/// Copies outside of the database to compare with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copies<'a> {
    pub anchors: &'a [Result<Anchor, i64>],
    /// The folder with the exported files of removed segments.
    pub exports: Option<&'a Path>,
}

/// The anchors not compared so far, by number of the seal.
type Wanted<'a> = BTreeMap<i64, Vec<&'a Anchor>>;

/// The end of the compared part of the chain.
struct Position {
    /// Number of the last seal.
    number: i64,
    /// Hash of the last seal.
    previous: Vec<u8>,
    /// The last event.
    after: i64,
}

/// Reads the whole history and compares the events with the seals, the anchors and the exported
/// files. The caller reads the anchors first, so a seal added during the check is not a fault.
///
/// # Errors
///
/// When the database fails.
pub async fn verify(conn: &mut PgConnection, copies: Copies<'_>) -> Result<Report, Error> {
    let mut report = Report::default();
    let mut wanted = Wanted::new();
    for line in copies.anchors {
        match line {
            Ok(anchor) => wanted.entry(anchor.number).or_default().push(anchor),
            Err(number) => report.add(Fault::AnchorUnreadable, *number, None),
        }
    }
    let mut segments = Segments::new(copies.exports);
    // Muster numbers from one. The range starts at the smallest number, so an inserted row with a
    // smaller number is found.
    let mut position = Position {
        number: 0,
        previous: BEGINNING.to_vec(),
        after: i64::MIN,
    };
    loop {
        let rows = db::seals::list(conn, position.number, PAGE).await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            while let Some(segment) = segments.next_before(conn, row.number).await? {
                pass_removed(conn, &mut report, &mut wanted, &mut position, segment).await?;
            }
            pass_seal(conn, &mut report, &mut wanted, &mut position, row).await?;
        }
    }
    // The newest seal is never removed, so no removed segment is at the end.
    while let Some(segment) = segments.next_before(conn, i64::MAX).await? {
        report.add(Fault::Truncated, segment.row.first_seal, None);
        pass_removed(conn, &mut report, &mut wanted, &mut position, segment).await?;
    }
    for gone in wanted.into_keys() {
        report.add(
            if gone > position.number {
                Fault::Truncated
            } else {
                Fault::SealRemoved
            },
            gone,
            None,
        );
    }
    (report.unsealed, report.unsealed_since) = db::seals::count_after(conn, position.after).await?;
    report.whole = report.found == 0;
    Ok(report)
}

/// Compares a seal with the seal before, its anchors and its events.
async fn pass_seal(
    conn: &mut PgConnection,
    report: &mut Report,
    wanted: &mut Wanted<'_>,
    position: &mut Position,
    row: SealRow,
) -> Result<(), Error> {
    report.skip(position.number + 1, row.number);
    let sound = row.previous == position.previous
        && row
            .seal()
            .is_some_and(|seal| seal.hash()[..] == row.hash[..]);
    if !sound {
        report.add(Fault::SealChanged, row.number, None);
    }
    report.compare(wanted, row.number, &row.hash);
    events(conn, report, &row, position.after).await?;
    let last = row.seqs.last().copied();
    position.after = last.unwrap_or(position.after).max(position.after);
    position.number = row.number;
    position.previous = row.hash;
    report.seals += 1;
    report.head = Some(hex::encode(&position.previous));
    Ok(())
}

/// Accepts a removed segment by the last seal, and compares the exported file. No event of the
/// segment is left in the database.
async fn pass_removed(
    conn: &mut PgConnection,
    report: &mut Report,
    wanted: &mut Wanted<'_>,
    position: &mut Position,
    segment: removed::Segment,
) -> Result<(), Error> {
    let row = segment.row;
    report.skip(position.number + 1, row.first_seal);
    if row.previous != position.previous || row.first_seal <= position.number {
        report.add(Fault::SealChanged, row.first_seal, None);
    }
    match segment.export {
        removed::Export::NotRead => {}
        removed::Export::Missing => report.add(Fault::ExportMissing, row.first_seal, None),
        removed::Export::Differs => report.add(Fault::ExportDiffers, row.first_seal, None),
        removed::Export::Same(checked) => {
            report.exports += 1;
            for (number, hash) in &checked.seals {
                report.compare(wanted, *number, hash);
            }
        }
    }
    report.compare(wanted, row.last_seal, &row.hash);
    // The anchors of the other seals need the exported file.
    wanted.retain(|number, _| !(row.first_seal..=row.last_seal).contains(number));
    for (seq, _) in db::seals::list_digests(conn, position.after, row.last_seq, 2000).await? {
        report.add(Fault::EventAdded, row.first_seal, Some(seq));
    }
    position.after = row.last_seq.max(position.after);
    position.number = row.last_seal.max(position.number);
    report.removed_segments += 1;
    report.removed_events += row.events;
    report.head = Some(hex::encode(&row.hash));
    position.previous = row.hash;
    Ok(())
}

/// Compares the events since the previous seal with the digests in this seal.
async fn events(
    conn: &mut PgConnection,
    report: &mut Report,
    row: &SealRow,
    after: i64,
) -> Result<(), Error> {
    let Some(seal) = row.seal() else {
        return Ok(());
    };
    let mut sealed: BTreeMap<i64, [u8; 32]> = seal.events.into_iter().collect();
    let last = sealed.last_key_value().map_or(after, |(seq, _)| *seq);
    let mut from = after;
    loop {
        let found = db::seals::list_digests(conn, from, last, 2000).await?;
        let Some((newest, _)) = found.last() else {
            break;
        };
        from = *newest;
        for (seq, digest) in found {
            match sealed.remove(&seq) {
                Some(expected) if expected == digest => report.events += 1,
                Some(_) => report.add(Fault::EventChanged, row.number, Some(seq)),
                None => report.add(Fault::EventAdded, row.number, Some(seq)),
            }
        }
    }
    sealed
        .into_keys()
        .for_each(|gone| report.add(Fault::EventRemoved, row.number, Some(gone)));
    Ok(())
}
