//! The maker's support of a driver branch on a day.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use super::branches::DriverBranch;

/// Days before the end of support in which the end counts as near.
pub const NEAR_DAYS: i64 = 90;

/// The maker's support of a driver branch. Months are written as `2026-06`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// Support has ended. `None`: no source names the month.
    Ended(Option<String>),
    /// Support ends within [`NEAR_DAYS`].
    EndsSoon(String),
    Until(String),
    /// No source names the end.
    Unknown,
}

impl Support {
    /// Returns the support in words for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Ended(Some(month)) => format!("support ended in {month}"),
            Self::Ended(None) => "support has ended".to_owned(),
            Self::EndsSoon(month) => format!("support ends in {month}"),
            Self::Until(month) => format!("supported until {month}"),
            Self::Unknown => "end of support unknown".to_owned(),
        }
    }
}

/// Returns the support of a branch at a time, by the day in UTC. A branch is supported until the
/// last day of the named month.
pub fn judge_support(branch: &DriverBranch, now: Timestamp) -> Support {
    let Some(month) = &branch.ends else {
        return match branch.is_ended {
            true => Support::Ended(None),
            false => Support::Unknown,
        };
    };
    let Ok(first) = format!("{month}-01").parse::<Date>() else {
        return Support::Unknown;
    };
    let last = first.last_of_month();
    let today = now.to_zoned(TimeZone::UTC).date();
    let near = today.saturating_add(Span::new().days(NEAR_DAYS));
    if last < today {
        Support::Ended(Some(month.clone()))
    } else if last <= near {
        Support::EndsSoon(month.clone())
    } else {
        Support::Until(month.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(ends: Option<&str>, is_ended: bool, now: &str) -> Support {
        let branch = DriverBranch {
            number: 595,
            kind: None,
            ends: ends.map(str::to_owned),
            is_ended,
            source: "a page".to_owned(),
            fix: None,
        };
        judge_support(&branch, now.parse().expect("a time"))
    }

    #[test]
    fn support_lasts_to_the_last_day_of_the_month_and_is_near_for_90_days() {
        let march = || "2027-03".to_owned();
        for (now, support) in [
            ("2026-12-30T23:59:59Z", Support::Until(march())),
            ("2026-12-31T00:00:00Z", Support::EndsSoon(march())),
            ("2027-03-31T23:59:59Z", Support::EndsSoon(march())),
            ("2027-04-01T00:00:00Z", Support::Ended(Some(march()))),
        ] {
            assert_eq!(judge(Some("2027-03"), false, now), support, "{now}");
        }
    }

    #[test]
    fn an_end_without_a_source_is_unknown() {
        let now = "2026-11-30T00:00:00Z";
        assert_eq!(judge(None, false, now), Support::Unknown);
        assert_eq!(judge(None, true, now), Support::Ended(None));
        assert_eq!(judge(Some("spring"), false, now), Support::Unknown);
    }

    #[test]
    fn each_support_has_words_of_its_own() {
        let june = || "2026-06".to_owned();
        for (support, words) in [
            (Support::Ended(Some(june())), "support ended in 2026-06"),
            (Support::Ended(None), "support has ended"),
            (Support::EndsSoon(june()), "support ends in 2026-06"),
            (Support::Until(june()), "supported until 2026-06"),
            (Support::Unknown, "end of support unknown"),
        ] {
            assert_eq!(support.describe(), words);
        }
    }

    #[test]
    fn the_last_day_of_a_short_month_and_of_a_leap_year_counts() {
        for (month, last, next) in [
            ("2026-02", "2026-02-28T23:59:59Z", "2026-03-01T00:00:00Z"),
            ("2028-02", "2028-02-29T23:59:59Z", "2028-03-01T00:00:00Z"),
            ("2026-12", "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"),
        ] {
            let soon = Support::EndsSoon(month.to_owned());
            assert_eq!(judge(Some(month), false, last), soon, "{last}");
            let ended = Support::Ended(Some(month.to_owned()));
            assert_eq!(judge(Some(month), false, next), ended, "{next}");
        }
    }
}
