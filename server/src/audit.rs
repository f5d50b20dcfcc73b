//! Whether the history is what was sealed: reads every seal and every event under it, and holds the seals against the anchors that were
//! written outside of the database. It changes nothing and trusts nothing that it reads.

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
/// Findings that are told; the rest is counted.
const TOLD: usize = 100;

/// A seal as it is written down outside of the database, a line of JSON each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    pub number: i64,
    /// The last event under it.
    pub last_seq: i64,
    /// 64 hex digits.
    pub hash: String,
    /// When it was written down.
    pub at: Timestamp,
}

/// What was found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The event is not the one that was sealed.
    EventChanged,
    /// The event was sealed and is not there.
    EventRemoved,
    /// The event is there and was not sealed, though all before and after it were.
    EventAdded,
    /// The seal is not there, though a later one is.
    SealRemoved,
    /// The seal does not say what its hash covers, or does not follow the one before.
    SealChanged,
    /// The seal was written down outside of the database, which ends before it.
    Truncated,
    /// The seal is not the one that was written down.
    AnchorDiffers,
    /// A line of the anchors cannot be read.
    AnchorUnreadable,
}

/// One thing found wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub fault: Fault,
    /// The seal it concerns; of anchors, where the line cannot be read, its number in the file.
    pub seal: i64,
    /// The event it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
}

/// What a look at the whole history came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Whether everything is as it was sealed.
    pub whole: bool,
    pub seals: i64,
    /// Events under the seals.
    pub events: i64,
    /// Events that are too new for a seal, and when the first of them happened: minutes ago means that nobody seals.
    pub unsealed: i64,
    pub unsealed_since: Option<Timestamp>,
    /// The hash of the newest seal.
    pub head: Option<String>,
    /// Anchors that were compared.
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

/// Reads the anchors of a file, in which a seal may stand more than once. The last line may be cut: a replica died while it wrote.
///
/// # Errors
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

/// Reads the whole history and holds it against its seals and their anchors. The anchors are read before: what is sealed meanwhile is no fault.
///
/// # Errors
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
    // Nothing of ours has a number below one: what has is slipped in.
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

/// Holds the events since the seal before against what this one says of them.
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
        let found = db::seals::digests(conn, from, last, 2000).await?;
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
