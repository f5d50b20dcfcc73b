//! The maintenance windows of a rollout: of the sites, of the pool and of the policy. Nodes are taken
//! while all of the windows are open.

use jiff::Timestamp;

use super::windows::{HORIZON_DAYS, MaintenanceWindow, Opening, Period, shift};

/// Most times at which the windows are compared. Windows that open once a day and never together are
/// compared for 50 days.
const MOST_STEPS: usize = 100;
/// Most openings and closed periods of a list.
const MOST_PERIODS: usize = 1000;
/// Longest list of closed periods. Earlier times count as closed.
const LOOK_BACK_DAYS: i64 = 90;

/// The maintenance windows obeyed by a rollout. Always open without windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calendar {
    pub windows: Vec<MaintenanceWindow>,
    /// A window exists by name only and cannot be read: the calendar is closed.
    pub is_unreadable: bool,
}

impl Calendar {
    /// Returns whether every window is open at a time.
    pub fn open_at(&self, time: Timestamp) -> Opening {
        let mut start = time;
        for _ in 0..MOST_STEPS {
            match self.compare(start) {
                open @ Opening::Open { .. } if start == time => return open,
                Opening::Open { .. } => return Opening::Closed { opens: Some(start) },
                Opening::Closed { opens: Some(later) } => start = later,
                Opening::Closed { opens: None } => break,
            }
        }
        Opening::Closed { opens: None }
    }

    /// Lists the periods between two times at which these windows are closed, ascending. Times earlier
    /// than 90 days before `to`, and beyond a bounded number of openings, count as closed.
    pub fn list_closed(&self, from: Timestamp, to: Timestamp) -> Vec<Period> {
        let mut closed = Vec::new();
        if !self.has_limits() {
            return closed;
        }
        let mut start = from.max(shift(to, -LOOK_BACK_DAYS));
        if from < start {
            closed.push(Period {
                start: from,
                end: start,
            });
        }
        for _ in 0..MOST_PERIODS {
            if start >= to {
                return closed;
            }
            let end = match self.open_at(start) {
                Opening::Open { until } => {
                    // Without an end in sight, the windows are open up to the horizon at least.
                    start = until.unwrap_or_else(|| shift(start, HORIZON_DAYS));
                    continue;
                }
                Opening::Closed { opens } => opens.unwrap_or(to).min(to),
            };
            closed.push(Period { start, end });
            start = end;
        }
        if start < to {
            closed.push(Period { start, end: to });
        }
        closed
    }

    /// Returns the end of the freezes at a time, if a freeze covers the time.
    pub fn frozen_at(&self, time: Timestamp) -> Option<Timestamp> {
        let mut end = None;
        for _ in 0..MOST_STEPS {
            let now = end.unwrap_or(time);
            let ends = self.windows.iter().filter_map(|one| one.frozen_at(now));
            match ends.max() {
                Some(later) => end = Some(later),
                None => break,
            }
        }
        end
    }

    /// Returns whether a time exists at which the rollout takes no nodes.
    pub fn has_limits(&self) -> bool {
        let limits = |one: &MaintenanceWindow| !one.weekly.is_empty() || !one.freezes.is_empty();
        self.is_unreadable || self.windows.iter().any(limits)
    }

    /// Returns the windows' common state at a time. A later opening may be refused by another window.
    fn compare(&self, time: Timestamp) -> Opening {
        if self.is_unreadable {
            return Opening::Closed { opens: None };
        }
        let states = self.windows.iter().map(|one| one.open_at(time));
        states.fold(Opening::Open { until: None }, Opening::and)
    }
}

impl From<MaintenanceWindow> for Calendar {
    fn from(window: MaintenanceWindow) -> Self {
        Self {
            windows: vec![window],
            is_unreadable: false,
        }
    }
}

impl Opening {
    /// Returns the state of two windows together. Both may open next at different times; the later
    /// time counts.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Open { until: one }, Self::Open { until: two }) => Self::Open {
                until: one.into_iter().chain(two).min(),
            },
            (Self::Open { .. }, closed @ Self::Closed { .. })
            | (closed @ Self::Closed { .. }, Self::Open { .. }) => closed,
            (Self::Closed { opens: one }, Self::Closed { opens: two }) => Self::Closed {
                opens: one.zip(two).map(|(one, two)| one.max(two)),
            },
        }
    }
}
