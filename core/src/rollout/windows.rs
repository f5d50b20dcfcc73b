//! Maintenance windows and freeze dates as values. A window begins at a local time, and its length is
//! elapsed time. A change of summer time makes no window longer or shorter.

use std::sync::LazyLock;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use super::faults::Fault;
use crate::words;

/// The time zones compiled into the program. The machine's own files are never read.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Days after the asked time within which windows are searched.
pub(super) const HORIZON_DAYS: i64 = 15;
/// Maximum length of a window: 7 days.
const MOST_MINUTES: u32 = 7 * 24 * 60;
/// Maximum length of a freeze.
const MOST_FREEZE_DAYS: i32 = 366;
const MOST_WINDOWS: usize = 32;
/// Maximum length of a reason, in characters.
const MOST_REASON: usize = 200;

/// A maintenance window: the times at which a rollout may take nodes out of service. Named by sites,
/// pools and policies of rollouts; a rollout takes nodes while all of its windows are open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MaintenanceWindow {
    /// The IANA name of the time zone: `Europe/Zurich`.
    pub time_zone: String,
    /// Always open if empty.
    #[serde(default)]
    pub weekly: Vec<Weekly>,
    /// Dates without any window.
    #[serde(default)]
    pub freezes: Vec<Freeze>,
}

/// A window on some days of the week.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Weekly {
    /// The days on which the window begins.
    pub days: Vec<Day>,
    /// The local time at which the window begins: `22:00:00`. A time skipped by the change of
    /// summer time is moved by the skipped hour. Of a repeated time the first counts.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub start: Time,
    /// Length in minutes of elapsed time; 15 minutes to 7 days.
    pub length_min: u32,
}

/// Dates on which the window is closed, from the first midnight to the midnight after the last day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Freeze {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub first: Date,
    /// Also closed; at most 366 days after `first`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub last: Date,
    /// The reason shown to people.
    #[serde(default)]
    pub reason: String,
}

words! {
    /// A day of the week.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    Day, "day of the week" {
        Monday = "mon",
        Tuesday = "tue",
        Wednesday = "wed",
        Thursday = "thu",
        Friday = "fri",
        Saturday = "sat",
        Sunday = "sun",
    }
}

impl Day {
    fn weekday(self) -> Weekday {
        match self {
            Self::Monday => Weekday::Monday,
            Self::Tuesday => Weekday::Tuesday,
            Self::Wednesday => Weekday::Wednesday,
            Self::Thursday => Weekday::Thursday,
            Self::Friday => Weekday::Friday,
            Self::Saturday => Weekday::Saturday,
            Self::Sunday => Weekday::Sunday,
        }
    }
}

/// The state of the windows at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Open until a time; `None` for at least 15 days.
    Open { until: Option<Timestamp> },
    /// Closed until a time; `None` if no window follows, or if the time zone is unknown.
    Closed { opens: Option<Timestamp> },
}

/// A period; the end is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period {
    pub start: Timestamp,
    pub end: Timestamp,
}

impl MaintenanceWindow {
    /// Returns windows that are always open.
    pub fn always() -> Self {
        Self {
            time_zone: "UTC".to_owned(),
            weekly: Vec::new(),
            freezes: Vec::new(),
        }
    }

    /// Returns whether a window is open at a time.
    pub fn open_at(&self, time: Timestamp) -> Opening {
        let Ok(zone) = ZONES.get(&self.time_zone) else {
            return Opening::Closed { opens: None };
        };
        let freezes = self.freeze_periods(&zone);
        let horizon = find_horizon(time, &freezes);
        let open = subtract(&self.open_periods(&zone, time, horizon), &freezes);
        let next = open.iter().find(|period| period.end > time);
        match next {
            Some(period) if period.start <= time => Opening::Open {
                until: Some(period.end).filter(|end| *end < horizon),
            },
            Some(period) => Opening::Closed {
                opens: Some(period.start),
            },
            None => Opening::Closed { opens: None },
        }
    }

    /// Returns the end of the freeze at a time, if a freeze covers the time.
    pub fn frozen_at(&self, time: Timestamp) -> Option<Timestamp> {
        let zone = ZONES.get(&self.time_zone).ok()?;
        let freezes = merge(self.freeze_periods(&zone));
        let covers = |period: &&Period| period.start <= time && time < period.end;
        freezes.iter().find(covers).map(|period| period.end)
    }

    /// Returns every error in the windows. Empty for valid windows.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if ZONES.get(&self.time_zone).is_err() {
            let detail = "Write the IANA name of a time zone, such as Europe/Zurich.";
            faults.push(Fault::new("time_zone", "unknown", detail));
        }
        if self.weekly.len() > MOST_WINDOWS || self.freezes.len() > MOST_WINDOWS {
            let detail = "At most 32 windows and 32 freezes.";
            faults.push(Fault::new("", "out_of_range", detail));
        }
        for (index, window) in self.weekly.iter().enumerate() {
            if window.days.is_empty() {
                let pointer = format!("weekly/{index}/days");
                faults.push(Fault::new(pointer, "out_of_range", "At least one day."));
            }
            if !(15..=MOST_MINUTES).contains(&window.length_min) {
                let pointer = format!("weekly/{index}/length_min");
                faults.push(Fault::new(pointer, "out_of_range", "15 to 10080 minutes."));
            }
        }
        for (index, freeze) in self.freezes.iter().enumerate() {
            let days = (freeze.last - freeze.first).get_days();
            if !(0..=MOST_FREEZE_DAYS).contains(&days) {
                let pointer = format!("freezes/{index}/last");
                let detail = "0 to 366 days after the first day.";
                faults.push(Fault::new(pointer, "out_of_range", detail));
            }
            if freeze.reason.chars().count() > MOST_REASON {
                let pointer = format!("freezes/{index}/reason");
                faults.push(Fault::new(
                    pointer,
                    "out_of_range",
                    "At most 200 characters.",
                ));
            }
        }
        faults
    }

    /// Returns the reason of a freeze that covers the time.
    pub fn find_freeze(&self, time: Timestamp) -> Option<&Freeze> {
        let zone = ZONES.get(&self.time_zone).ok()?;
        let date = zone.to_datetime(time).date();
        let covers = |freeze: &&Freeze| freeze.first <= date && date <= freeze.last;
        self.freezes.iter().find(covers)
    }

    /// Returns whether the other document may be open at a time at which this one is closed. Only
    /// further freezes keep the answer at no.
    pub fn may_open_more(&self, other: &Self) -> bool {
        let keeps = |freeze: &Freeze| {
            let covers = |new: &Freeze| new.first <= freeze.first && freeze.last <= new.last;
            other.freezes.iter().any(covers)
        };
        let has_windows = self.time_zone == other.time_zone && self.weekly == other.weekly;
        !has_windows || !self.freezes.iter().all(keeps)
    }

    fn freeze_periods(&self, zone: &TimeZone) -> Vec<Period> {
        let period = |freeze: &Freeze| {
            let after = freeze.last.tomorrow().ok()?;
            Some(Period {
                start: instant(zone, freeze.first, Time::midnight())?,
                end: instant(zone, after, Time::midnight())?,
            })
        };
        self.freezes.iter().filter_map(period).collect()
    }

    /// Returns the merged windows between the longest window before `time` and the horizon.
    fn open_periods(&self, zone: &TimeZone, time: Timestamp, horizon: Timestamp) -> Vec<Period> {
        let start = shift(time, -(i64::from(MOST_MINUTES) / (24 * 60) + 1));
        if self.weekly.is_empty() {
            return vec![Period {
                start,
                end: horizon,
            }];
        }
        let (first, last) = (
            zone.to_datetime(start).date(),
            zone.to_datetime(horizon).date(),
        );
        let mut periods = Vec::new();
        for date in first.series(1.day()).take_while(|date| *date <= last) {
            let today = |window: &&Weekly| {
                let begins = |day: &Day| day.weekday() == date.weekday();
                window.days.iter().any(begins)
            };
            periods.extend(self.weekly.iter().filter(today).filter_map(|window| {
                let start = instant(zone, date, window.start)?;
                let length = SignedDuration::from_mins(i64::from(window.length_min));
                let end = start.checked_add(length).ok()?;
                Some(Period { start, end })
            }));
        }
        merge(periods)
    }
}

/// Returns the instant of a local time.
fn instant(zone: &TimeZone, date: Date, time: Time) -> Option<Timestamp> {
    zone.to_timestamp(date.to_datetime(time)).ok()
}

/// Returns the time some days later, bounded by the range of timestamps.
pub(super) fn shift(time: Timestamp, days: i64) -> Timestamp {
    add(time, SignedDuration::from_hours(24 * days))
}

/// Returns the time after a duration, bounded by the range of timestamps.
pub(super) fn add(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.saturating_add(duration)
        .expect("a duration has no calendar units")
}

/// Returns the end of the search: 15 days after `time`, and after every freeze that begins earlier.
fn find_horizon(time: Timestamp, freezes: &[Period]) -> Timestamp {
    let mut sorted = freezes.to_vec();
    sorted.sort_unstable();
    let extend = |horizon: Timestamp, freeze: &Period| match freeze.start < horizon {
        true => horizon.max(shift(freeze.end, HORIZON_DAYS)),
        false => horizon,
    };
    sorted.iter().fold(shift(time, HORIZON_DAYS), extend)
}

/// Returns the time between two times outside the periods, which do not overlap.
pub(super) fn measure_outside(
    periods: &[Period],
    from: Timestamp,
    to: Timestamp,
) -> SignedDuration {
    let inside = periods.iter().map(|period| {
        let part = period.end.min(to).duration_since(period.start.max(from));
        part.max(SignedDuration::ZERO)
    });
    inside.fold(to.duration_since(from), |left, part| left - part)
}

/// Returns the periods in order, with overlapping and adjacent periods as one period.
fn merge(mut periods: Vec<Period>) -> Vec<Period> {
    periods.sort_unstable();
    let mut merged: Vec<Period> = Vec::new();
    for period in periods {
        match merged.last_mut() {
            Some(last) if period.start <= last.end => last.end = last.end.max(period.end),
            _ => merged.push(period),
        }
    }
    merged
}

/// Returns the parts of the periods outside of every freeze.
fn subtract(periods: &[Period], freezes: &[Period]) -> Vec<Period> {
    let mut left = periods.to_vec();
    for freeze in freezes {
        let cut = |period: Period| {
            let before = Period {
                end: period.end.min(freeze.start),
                ..period
            };
            let after = Period {
                start: period.start.max(freeze.end),
                ..period
            };
            [before, after]
                .into_iter()
                .filter(|part| part.start < part.end)
        };
        left = left.into_iter().flat_map(cut).collect();
    }
    left
}
