//! Removed segments, in the order of the chain, each with the comparison of the exported file.

use std::collections::VecDeque;
use std::path::Path;

use sqlx::PgConnection;

use super::segments::{Checked, check, digest_of};
use crate::db;
use crate::db::segments::SegmentRow;
use crate::error::Error;

/// Segments of one read.
const PAGE: i64 = 100;

/// The comparison of an exported file with a removed segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Export {
    /// The check has no folder of exported files.
    NotRead,
    Missing,
    Differs,
    Same(Checked),
}

/// A removed segment.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) row: SegmentRow,
    pub(super) export: Export,
}

/// A reader of the removed segments.
pub(super) struct Segments<'a> {
    exports: Option<&'a Path>,
    read: VecDeque<SegmentRow>,
    /// The first seal of the last segment read; `None` after the end.
    after: Option<i64>,
}

impl<'a> Segments<'a> {
    pub(super) fn new(exports: Option<&'a Path>) -> Self {
        Self {
            exports,
            read: VecDeque::new(),
            after: Some(0),
        }
    }

    /// Returns the next segment, if the segment begins before a seal.
    ///
    /// # Errors
    ///
    /// When the database fails.
    pub(super) async fn next_before(
        &mut self,
        conn: &mut PgConnection,
        seal: i64,
    ) -> Result<Option<Segment>, Error> {
        if self.read.is_empty()
            && let Some(after) = self.after
        {
            self.read = db::segments::list(conn, after, PAGE).await?.into();
            self.after = self.read.back().map(|row| row.first_seal);
        }
        if self.read.front().is_none_or(|row| row.first_seal >= seal) {
            return Ok(None);
        }
        let exports = self.exports;
        Ok(self.read.pop_front().map(|row| Segment {
            export: exports.map_or(Export::NotRead, |folder| compare(folder, &row)),
            row,
        }))
    }
}

/// Compares the exported file of a segment. The name from the database is a name in the folder,
/// never a path.
fn compare(folder: &Path, row: &SegmentRow) -> Export {
    let is_name = !row.file.starts_with('.') && !row.file.contains(['/', '\\']);
    let Some(text) = is_name
        .then(|| std::fs::read_to_string(folder.join(&row.file)).ok())
        .flatten()
    else {
        return Export::Missing;
    };
    if digest_of(&text)[..] != row.digest[..] {
        return Export::Differs;
    }
    let Ok(checked) = check(&text) else {
        return Export::Differs;
    };
    let first = checked.seals.first_key_value().map(|(number, _)| *number);
    let last = checked
        .seals
        .last_key_value()
        .map(|(number, hash)| (*number, hash.to_vec()));
    let is_same = checked.previous[..] == row.previous[..]
        && checked.events == row.events
        && first == Some(row.first_seal)
        && last == Some((row.last_seal, row.hash.clone()));
    match is_same {
        true => Export::Same(checked),
        false => Export::Differs,
    }
}
