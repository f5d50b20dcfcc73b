//! Verifies the history against the seals. Reads every seal and every sealed event, and compares
//! the seals with the anchors written outside the database. The check writes no rows and trusts no
//! stored value.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use muster_core::audit::BEGINNING;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

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
    /// An anchored seal is missing, and the database ends before the seal: the history was
    /// truncated.
    Truncated,
    /// The stored seal differs from the anchored seal.
    AnchorDiffers,
    /// A line of the anchors cannot be parsed.
    AnchorUnreadable,
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

/// Reads the whole history and compares the events with the seals and the anchors. The caller reads
/// the anchors first, so a seal added during the check is not a fault.
///
/// # Errors
///
/// When the database fails.
pub async fn verify(
    conn: &mut PgConnection,
    anchors: &[Result<Anchor, i64>],
) -> Result<Report, Error> {
    let mut report = Report::default();
    let mut wanted: BTreeMap<i64, Vec<&Anchor>> = BTreeMap::new();
    for line in anchors {
        match line {
            Ok(anchor) => wanted.entry(anchor.number).or_default().push(anchor),
            Err(number) => report.add(Fault::AnchorUnreadable, *number, None),
        }
    }
    // Muster numbers from one. The range starts at the smallest number, so an inserted row with a
    // smaller number is found.
    let (mut number, mut previous, mut after) = (0, BEGINNING.to_vec(), i64::MIN);
    loop {
        let rows = db::seals::list(conn, number, PAGE).await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            (number + 1..row.number)
                .take(TOLD)
                .for_each(|gone| report.add(Fault::SealRemoved, gone, None));
            let sound = row.previous == previous
                && row
                    .seal()
                    .is_some_and(|seal| seal.hash()[..] == row.hash[..]);
            if !sound {
                report.add(Fault::SealChanged, row.number, None);
            }
            for anchor in wanted.remove(&row.number).unwrap_or_default() {
                report.anchors += 1;
                if anchor.hash != hex::encode(&row.hash) {
                    report.add(Fault::AnchorDiffers, row.number, None);
                }
            }
            events(conn, &mut report, &row, after).await?;
            after = row.seqs.last().copied().unwrap_or(after).max(after);
            (number, previous) = (row.number, row.hash);
            report.seals += 1;
            report.head = Some(hex::encode(&previous));
        }
    }
    for gone in wanted.into_keys() {
        report.add(
            if gone > number {
                Fault::Truncated
            } else {
                Fault::SealRemoved
            },
            gone,
            None,
        );
    }
    (report.unsealed, report.unsealed_since) = db::seals::count_after(conn, after).await?;
    report.whole = report.found == 0;
    Ok(report)
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
