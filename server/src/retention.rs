//! How long records are kept, in days (docs/retention.md).

use jiff::{SignedDuration, Timestamp};

/// The settings of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub events_days: u32,
    /// Evidence of gates. The last passed run of each suite of a node stays.
    pub evidence_days: u32,
    /// Inventories. The newest and the first of each node stay.
    pub facts_days: u32,
    /// Logs of ended jobs.
    pub job_logs_days: u32,
    pub consoles_days: u32,
    /// Blobs of the server since the end of their last use.
    pub unused_blobs_days: u32,
}

impl Retention {
    /// The settings of a server without options.
    pub const DEFAULT: Self = Self {
        events_days: 400,
        evidence_days: 90,
        facts_days: 400,
        job_logs_days: 90,
        consoles_days: 90,
        unused_blobs_days: 30,
    };
}

impl Default for Retention {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Returns the time a number of days ago. Times before the calendar of [`Timestamp`] become the
/// begin of the calendar.
pub fn days_ago(now: Timestamp, days: u32) -> Timestamp {
    now.checked_sub(SignedDuration::from_hours(24 * i64::from(days)))
        .unwrap_or(Timestamp::MIN)
}
