//! The growth of counters between two runs of a tool. The start of a counter is unknown, so only
//! the growth describes the present.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use muster_core::gates::{Limit, Sample};

use super::parsers::Reading;
use crate::job::JobContext;

/// The interval between two checks for a cancelled job.
const POLL: Duration = Duration::from_millis(200);

#[cfg(test)]
thread_local! {
    /// A test's change of the machine. The next window of the thread applies the change.
    pub(super) static CHANGE: std::cell::Cell<Option<Box<dyn FnOnce()>>> =
        const { std::cell::Cell::new(None) };
}

/// The reason for the early end of a wait.
pub(super) enum Ended {
    Cancelled,
    Deadline,
}

/// Waits for the length of the window, at most until the job's deadline.
///
/// # Errors
/// [`Ended`], after a cancellation or at the deadline.
pub(super) fn wait(cx: &JobContext, window: Duration) -> Result<(), Ended> {
    #[cfg(test)]
    CHANGE.take().into_iter().for_each(|change| change());
    let end = Instant::now() + window;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match () {
            () if cx.cancelled() => return Err(Ended::Cancelled),
            () if left.is_zero() => return Ok(()),
            () if cx.remaining().is_zero() => return Err(Ended::Deadline),
            () => std::thread::sleep(left.min(POLL)),
        }
    }
}

/// Returns the growth of every number, and drops words. Both answers must have the same names, and
/// every name only once.
///
/// # Errors
/// For a target without an answer, a name in a single answer, a name measured twice, and a falling counter. A counter falls
/// after a reset or after an absence of the device.
pub(super) fn grown(before: &Reading, after: Reading) -> Result<Reading, String> {
    if let Some(gap) = before.gaps.iter().chain(&after.gaps).next() {
        return Err(gap.clone());
    }
    let former = numbers(&before.samples)?;
    let latter = numbers(&after.samples)?;
    if let Some((metric, entity)) = former
        .keys()
        .chain(latter.keys())
        .find(|of| former.len() != latter.len() || !former.contains_key(*of))
    {
        return Err(format!(
            "{}: the two runs do not tell of the same",
            named(metric, entity)
        ));
    }
    let mut samples = Vec::with_capacity(latter.len());
    let mut notes = Vec::new();
    for ((metric, entity), now) in &latter {
        let then = former.get(&(*metric, *entity)).copied().unwrap_or(f64::NAN);
        // A comparison with NaN gives `None`, so NaN is refused.
        if now.partial_cmp(&then).is_none_or(std::cmp::Ordering::is_lt) {
            return Err(format!(
                "{} fell from {then} to {now}: it was cleared meanwhile",
                named(metric, entity)
            ));
        }
        if *now > then && !entity.is_empty() {
            notes.push(format!(
                "{} grew from {then} to {now}",
                named(metric, entity)
            ));
        }
        samples.push(Sample {
            metric,
            entity: (*entity).to_owned(),
            value: Limit::Number(now - then),
        });
    }
    notes.extend(after.notes);
    let mut unread = after.unread;
    unread.extend(before.unread.iter().cloned());
    Ok(Reading {
        samples,
        unread,
        notes,
        versions: after.versions,
        ..Reading::default()
    })
}

fn named(metric: &str, entity: &str) -> String {
    if entity.is_empty() {
        metric.to_owned()
    } else {
        format!("{metric} of {entity}")
    }
}

fn numbers(samples: &[Sample]) -> Result<BTreeMap<(&'static str, &str), f64>, String> {
    let mut numbers = BTreeMap::new();
    for sample in samples {
        let Limit::Number(number) = sample.value else {
            continue;
        };
        if numbers
            .insert((sample.metric, sample.entity.as_str()), number)
            .is_some()
        {
            return Err(format!(
                "{} was measured twice",
                named(sample.metric, &sample.entity)
            ));
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(samples: &[(&'static str, &str, f64)]) -> Reading {
        let sample = |(metric, entity, value): &(&'static str, &str, f64)| Sample {
            metric,
            entity: (*entity).to_owned(),
            value: Limit::Number(*value),
        };
        Reading {
            samples: samples.iter().map(sample).collect(),
            ..Reading::default()
        }
    }

    #[test]
    fn what_grew_is_told_and_what_cannot_be_compared_is_refused() {
        let before = reading(&[
            ("ib.link_downed", "6/1", 3.0),
            ("ib.symbol_errors", "6/1", 70.0),
        ]);
        let after = reading(&[
            ("ib.symbol_errors", "6/1", 75.0),
            ("ib.link_downed", "6/1", 3.0),
        ]);
        let told = grown(&before, after.clone()).unwrap();
        assert_eq!(
            (
                told.number("ib.link_downed", "6/1"),
                told.number("ib.symbol_errors", "6/1")
            ),
            (Some(0.0), Some(5.0))
        );
        let wrong = [
            (
                "fell from 3 to 0",
                reading(&[
                    ("ib.link_downed", "6/1", 0.0),
                    ("ib.symbol_errors", "6/1", 75.0),
                ]),
            ),
            (
                "do not tell of the same",
                reading(&[("ib.link_downed", "6/1", 3.0)]),
            ),
            (
                "do not tell of the same",
                reading(&[
                    ("ib.link_downed", "7/1", 3.0),
                    ("ib.symbol_errors", "6/1", 75.0),
                ]),
            ),
            (
                "fell from",
                reading(&[
                    ("ib.link_downed", "6/1", f64::NAN),
                    ("ib.symbol_errors", "6/1", 75.0),
                ]),
            ),
            (
                "measured twice",
                reading(&[
                    ("ib.link_downed", "6/1", 3.0),
                    ("ib.link_downed", "6/1", 3.0),
                ]),
            ),
        ];
        for (why, after) in wrong {
            let refused = grown(&before, after).expect_err(why);
            assert!(refused.contains(why), "{refused}");
        }
        assert!(
            grown(&reading(&[]), after).is_err(),
            "nothing was known before"
        );
    }
}
