//! The state of a monitor, from its last answers.

use jiff::{SignedDuration, Timestamp};

use crate::words;

/// Missing answers in a row after which a monitor is silent.
const MOST_MISSED: u32 = 3;
/// Time beyond the expected answers after which the last answer is too old.
const GRACE: SignedDuration = SignedDuration::from_secs(60);

words! {
    /// The state of a monitor.
    #[derive(Default)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    MonitorState, "state of a monitor" {
        /// The last answer has no series.
        Quiet = "quiet",
        /// The last answer has series.
        Firing = "firing",
        /// Three or more answers in a row are missing.
        Silent = "silent",
        /// No present answer: not asked yet, an answer is missing, or the last answer is too old.
        #[default]
        Unknown = "unknown",
    }
}

/// The last answers of a monitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Time and number of series of the last answer.
    pub last: Option<(Timestamp, u64)>,
    /// Missing answers since then.
    pub missed: u32,
}

impl Answers {
    /// Returns the state of a monitor that is asked at an interval. One or two missing answers do not
    /// end a firing state.
    pub fn find_state(&self, interval: SignedDuration, now: Timestamp) -> MonitorState {
        if self.missed >= MOST_MISSED {
            return MonitorState::Silent;
        }
        let longest = interval * i32::try_from(MOST_MISSED + 1).unwrap_or(i32::MAX) + GRACE;
        match self.last {
            Some((at, _)) if now.duration_since(at) > longest => MonitorState::Unknown,
            // The clock was set back.
            Some((at, _)) if at.duration_since(now) > GRACE => MonitorState::Unknown,
            Some((_, 1..)) => MonitorState::Firing,
            Some((_, 0)) if self.missed == 0 => MonitorState::Quiet,
            Some((_, 0)) | None => MonitorState::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_needs_a_present_answer() {
        let now: Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
        let seconds = SignedDuration::from_secs;
        let quiet = Some((now, 0));
        let fires = Some((now, 7));
        let table = [
            (None, 0, 0, MonitorState::Unknown),
            (None, 2, 0, MonitorState::Unknown),
            (None, 3, 0, MonitorState::Silent),
            (quiet, 0, 0, MonitorState::Quiet),
            (quiet, 0, 180, MonitorState::Quiet),
            (quiet, 0, 181, MonitorState::Unknown),
            (quiet, 0, -60, MonitorState::Quiet),
            (quiet, 0, -61, MonitorState::Unknown),
            (fires, 0, -61, MonitorState::Unknown),
            (quiet, 1, 60, MonitorState::Unknown),
            (quiet, 3, 120, MonitorState::Silent),
            (fires, 0, 0, MonitorState::Firing),
            (fires, 2, 90, MonitorState::Firing),
            (fires, 2, 181, MonitorState::Unknown),
            (fires, 3, 120, MonitorState::Silent),
        ];
        for (last, missed, later, state) in table {
            let answers = Answers { last, missed };
            let found = answers.find_state(seconds(30), now + seconds(later));
            assert_eq!(found, state, "{answers:?} after {later} s");
        }
    }
}
