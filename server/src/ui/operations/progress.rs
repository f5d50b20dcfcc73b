//! Progress of a step, as reported by the agent.

use jiff::Timestamp;
use muster_core::wire::node::Progress as Reported;

use crate::db::operations::StepRow;
use crate::ui::format::{self, Moment};

/// A progress message, with an optional bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ui) struct Progress {
    pub message: String,
    pub bar: Option<Bar>,
    pub at: Moment,
}

/// Progress as `done` of `total` units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ui) struct Bar {
    pub done: u64,
    pub total: u64,
    /// Percentage, rounded down: 999 of 1000 never reads 100 %.
    pub percent: u64,
    pub told: String,
}

/// Returns the agent's latest progress report of a step.
pub(in crate::ui) fn read_report(step: &StepRow, now: Timestamp) -> Option<Progress> {
    let reported: Reported = serde_json::from_value(step.progress.clone()?).ok()?;
    let unit = reported.unit.as_deref().unwrap_or_default();
    let amount = |number: u64| match unit {
        "bytes" | "B" => format::bytes(number),
        _ => format::count(i64::try_from(number).unwrap_or(i64::MAX)),
    };
    let bar = reported
        .done
        .zip(reported.total)
        .filter(|(_, total)| *total > 0)
        .map(|(done, total)| {
            let done = done.min(total);
            let unit = if matches!(unit, "bytes" | "B" | "") {
                String::new()
            } else {
                format!(" {}", format::cut(unit, 20))
            };
            let percent = u64::try_from(u128::from(done) * 100 / u128::from(total)).unwrap_or(0);
            Bar {
                done,
                total,
                percent,
                told: format!("{} of {}{unit}", amount(done), amount(total)),
            }
        });
    Some(Progress {
        message: format::cut(&reported.message, 200),
        bar,
        at: format::moment(reported.at, now),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::ids::JobId;
    use muster_core::lifecycle::steps::{JobState, Step};
    use serde_json::json;

    fn step(progress: serde_json::Value) -> StepRow {
        StepRow {
            operation: None,
            job: JobId::new(),
            step: Step::WriteImage,
            kind: Step::WriteImage,
            state: JobState::Leased,
            attempt: 1,
            round: 1,
            progress: Some(progress),
            waiting_for: None,
            failure: None,
            created_at: Timestamp::UNIX_EPOCH,
            started_at: None,
            finished_at: None,
        }
    }

    #[test]
    fn almost_done_is_not_done() {
        let at = "1970-01-01T00:00:00Z";
        let reported = |done: u64, total: u64| json!({ "at": at, "message": "m", "done": done, "total": total, "unit": "bytes" });
        let bar = |done, total| {
            read_report(&step(reported(done, total)), Timestamp::UNIX_EPOCH)
                .unwrap()
                .bar
        };
        assert_eq!(bar(999, 1000).unwrap().percent, 99);
        assert_eq!(bar(u64::MAX, u64::MAX).unwrap().percent, 100);
        assert_eq!(bar(7, 5).unwrap().percent, 100);
        assert_eq!(bar(0, 0), None);
        assert_eq!(bar(1536, 3 << 30).unwrap().told, "1.5 KiB of 3 GiB");
        assert_eq!(
            read_report(&step(json!("junk")), Timestamp::UNIX_EPOCH),
            None
        );
    }
}
