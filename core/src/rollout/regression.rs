//! A value of a gate on changed nodes, compared with the value before the change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::monitors::MonitorState;
use crate::gates::{Limit, Measured, Op};
use crate::words;

/// The largest loss, or gain, in percent.
const MOST_PERCENT: f64 = 10_000.0;
/// Longest name of a disk, GPU, link or unit, in characters.
const LONGEST: usize = 80;

/// A limit on the loss of a gate's value by the change of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Regression {
    /// Id of a gate of the pool's suite.
    pub gate: String,
    /// Metric of the gate, with a limit `>=` or `<=`.
    pub metric: String,
    /// Tolerated loss, in percent of the value before the change; 1 to 1000, and below 100 for a limit
    /// `>=`. A lower value is a loss under a limit `>=`, and a higher value under a limit `<=`.
    pub percent: u32,
    /// The number of nodes with a larger loss that halts the rollout; at least 1.
    #[serde(default = "one")]
    pub nodes: u32,
}

fn one() -> u32 {
    1
}

/// The largest loss of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// The disk, GPU or link; empty for the node itself.
    pub entity: String,
    pub before: f64,
    pub after: f64,
    pub unit: String,
    /// In percent of the value before. Negative for a better value.
    pub percent: f64,
}

words! {
    /// Why the values of a node cannot be compared.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    NotCompared, "reason against a comparison" {
        /// The gate has no result since the change of the node.
        NoResultAfter = "no_result_after",
        /// The gate has no earlier result with the same suite on the same hardware and firmware.
        NoResultBefore = "no_result_before",
        /// The results have not the same number of numbers of the metric.
        NoCommonValue = "no_common_value",
        /// A stored result cannot be read.
        Unreadable = "unreadable",
    }
}

/// Returns the largest loss of a metric. Values are compared by disk, GPU or link. If those have other
/// names than before, such as after a change of the driver, the values are compared by rank.
///
/// # Errors
/// When the values cannot be compared.
pub fn compare(metric: &str, before: &[Measured], after: &[Measured]) -> Result<Loss, NotCompared> {
    let (former, present) = (list_values(metric, before)?, list_values(metric, after)?);
    if !former.keys().eq(present.keys()) {
        return Err(NotCompared::NoCommonValue);
    }
    let mut largest: Option<Loss> = None;
    for ((kind, former), present) in former.into_iter().zip(present.into_values()) {
        for (before, after) in pair(former, present)? {
            let percent = measure_loss(kind.direction, before.1, after.1);
            let percent = percent.ok_or(NotCompared::NoCommonValue)?;
            if largest.as_ref().is_none_or(|most| percent > most.percent) {
                largest = Some(Loss {
                    entity: keep_printable(&after.0),
                    before: before.1,
                    after: after.1,
                    unit: keep_printable(&kind.unit),
                    percent,
                });
            }
        }
    }
    largest.ok_or(NotCompared::NoCommonValue)
}

/// Returns whether values under a limit of this kind can be compared.
pub fn is_comparable(op: Op) -> bool {
    match op {
        Op::AtLeast | Op::AtMost => true,
        Op::Equal | Op::NotEqual => false,
    }
}

/// Values of a disk, GPU or link, by kind.
type Values = BTreeMap<ValueKind, Vec<Value>>;

/// The disk, GPU or link, and its value.
type Value = (String, f64);

/// The direction of the limit and the unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ValueKind {
    direction: Direction,
    unit: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    HigherIsBetter,
    LowerIsBetter,
}

/// Returns the values of a metric with a limit `>=` or `<=`.
///
/// # Errors
/// When a value is no number.
fn list_values(metric: &str, measured: &[Measured]) -> Result<Values, NotCompared> {
    let mut values = Values::new();
    for one in measured.iter().filter(|one| one.metric == metric) {
        let direction = match one.op {
            Op::AtLeast => Direction::HigherIsBetter,
            Op::AtMost => Direction::LowerIsBetter,
            Op::Equal | Op::NotEqual => continue,
        };
        let Limit::Number(value) = one.value else {
            return Err(NotCompared::NoCommonValue);
        };
        let unit = one.unit.clone();
        let of_kind = values.entry(ValueKind { direction, unit }).or_default();
        of_kind.push((one.entity.clone(), value));
    }
    Ok(values)
}

/// Pairs the values before and after: by entity, or by rank for other entities.
///
/// # Errors
/// When one of both has more values.
fn pair(
    mut before: Vec<Value>,
    mut after: Vec<Value>,
) -> Result<impl Iterator<Item = (Value, Value)>, NotCompared> {
    if before.len() != after.len() {
        return Err(NotCompared::NoCommonValue);
    }
    for values in [&mut before, &mut after] {
        values.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
    }
    if before
        .iter()
        .zip(&after)
        .any(|(one, other)| one.0 != other.0)
    {
        for values in [&mut before, &mut after] {
            values.sort_by(|one, other| one.1.total_cmp(&other.1));
        }
    }
    Ok(before.into_iter().zip(after))
}

/// Returns the loss in percent of the value before; [`MOST_PERCENT`] for a rise from 0 that is a loss.
/// `None` for a negative value, and for a value that is no number.
fn measure_loss(direction: Direction, before: f64, after: f64) -> Option<f64> {
    if !(before >= 0.0 && after >= 0.0 && before.is_finite() && after.is_finite()) {
        return None;
    }
    let lost = match direction {
        Direction::HigherIsBetter => before - after,
        Direction::LowerIsBetter => after - before,
    };
    if lost == 0.0 {
        return Some(0.0);
    }
    // A division by 0 is infinite.
    Some((100.0 * lost / before).clamp(-MOST_PERCENT, MOST_PERCENT))
}

/// Returns a text of a node for people: without control characters, and cut.
fn keep_printable(text: &str) -> String {
    let printable = text
        .chars()
        .filter(|c| c.is_alphanumeric() || c.is_ascii_graphic() || *c == ' ');
    printable.take(LONGEST).collect()
}

/// The changed nodes of a rollout, by their comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Comparisons {
    /// Nodes whose change has ended.
    pub changed: u32,
    /// Changed nodes that are not looked at yet.
    pub pending: u32,
    /// Changed nodes with a loss, or a gain, that is known.
    pub compared: u32,
    /// Compared nodes with a loss beyond the limit.
    pub worse: u32,
}

impl Comparisons {
    /// Returns the state of the signal. Nodes that cannot be compared are no evidence: the state is
    /// unknown while too few of the changed nodes are compared for a halt.
    pub fn find_state(self, limit: &Regression) -> MonitorState {
        let needed = limit.nodes.max(1);
        if self.worse >= needed {
            return MonitorState::Firing;
        }
        match self.pending > 0 || self.compared < needed.min(self.changed) {
            true => MonitorState::Unknown,
            false => MonitorState::Quiet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::Verdict;

    fn measured(metric: &str, entity: &str, op: Op, value: Limit) -> Measured {
        Measured {
            metric: metric.to_owned(),
            entity: entity.to_owned(),
            value,
            op,
            limit: Limit::Number(0.0),
            unit: "GB/s".to_owned(),
            verdict: Verdict::Pass,
        }
    }

    fn speed(entity: &str, value: f64) -> Measured {
        measured("speed", entity, Op::AtLeast, Limit::Number(value))
    }

    fn latency(value: f64) -> Measured {
        measured("latency", "", Op::AtMost, Limit::Number(value))
    }

    #[test]
    fn the_largest_loss_is_found_by_entity_and_direction() {
        let before = [speed("0", 100.0), speed("1", 80.0), latency(10.0)];
        let after = [speed("1", 76.0), speed("0", 99.0), latency(15.0)];
        let loss = compare("speed", &before, &after).unwrap();
        assert_eq!((loss.entity.as_str(), loss.percent), ("1", 5.0));
        assert_eq!(compare("latency", &before, &after).unwrap().percent, 50.0);
        assert_eq!(
            compare("latency", &after, &before).unwrap().percent,
            -100.0 / 3.0
        );
        let gain = compare("speed", &after[..1], &before[1..]).unwrap();
        assert!(gain.percent < 0.0, "{gain:?}");
    }

    #[test]
    fn values_without_a_counterpart_are_not_compared() {
        let text = measured("speed", "0", Op::AtLeast, Limit::Text("fast".to_owned()));
        let equal = measured("speed", "0", Op::Equal, Limit::Number(100.0));
        let other_unit = Measured {
            unit: "Gb/s".to_owned(),
            ..speed("0", 100.0)
        };
        for before in [
            vec![],
            vec![speed("0", 100.0), speed("1", 100.0)],
            vec![speed("0", -1.0)],
            vec![speed("0", f64::NAN)],
            vec![speed("0", f64::INFINITY)],
            vec![text],
            vec![equal.clone()],
            vec![other_unit],
            vec![latency(10.0)],
        ] {
            let found = compare("speed", &before, &[speed("0", 50.0)]);
            assert_eq!(found, Err(NotCompared::NoCommonValue), "{before:?}");
        }
        let found = compare(
            "speed",
            std::slice::from_ref(&equal),
            std::slice::from_ref(&equal),
        );
        assert_eq!(found, Err(NotCompared::NoCommonValue));
    }

    /// A new driver may number the GPUs in another order.
    #[test]
    fn values_of_renamed_entities_are_compared_by_rank() {
        let before = [speed("0", 100.0), speed("1", 80.0)];
        let renamed = [speed("a", 80.0), speed("b", 100.0)];
        assert_eq!(compare("speed", &before, &renamed).unwrap().percent, 0.0);
        let slower = [speed("a", 80.0), speed("b", 90.0)];
        let loss = compare("speed", &before, &slower).unwrap();
        assert_eq!((loss.entity.as_str(), loss.percent), ("b", 10.0));
    }

    #[test]
    fn a_rise_from_zero_is_the_largest_loss() {
        let percent = |before, after| {
            let found = compare("latency", &[latency(before)], &[latency(after)]);
            found.unwrap().percent
        };
        assert_eq!(percent(0.0, 0.0), 0.0);
        assert_eq!(percent(0.0, 1.0), MOST_PERCENT);
        assert_eq!(percent(1e-300, 1e300), MOST_PERCENT);
        assert_eq!(percent(5.0, 0.0), -100.0);
    }

    #[test]
    fn the_text_of_a_node_is_printable_and_short() {
        let entity = format!("\u{202e}\nGPU 3{}", "x".repeat(200));
        let loss = compare("speed", &[speed(&entity, 1.0)], &[speed(&entity, 1.0)]).unwrap();
        assert!(loss.entity.starts_with("GPU 3x"), "{}", loss.entity);
        assert_eq!(loss.entity.chars().count(), LONGEST);
    }

    #[test]
    fn a_state_needs_a_compared_node() {
        let limit = |nodes| Regression {
            gate: "gpu.burn".to_owned(),
            metric: "speed".to_owned(),
            percent: 5,
            nodes,
        };
        let table = [
            ((0, 0, 0, 0), 1, MonitorState::Quiet),
            ((1, 1, 0, 0), 1, MonitorState::Unknown),
            ((1, 0, 0, 0), 1, MonitorState::Unknown),
            ((1, 0, 1, 0), 1, MonitorState::Quiet),
            ((3, 0, 1, 0), 1, MonitorState::Quiet),
            ((3, 0, 1, 1), 2, MonitorState::Unknown),
            ((1, 0, 1, 1), 2, MonitorState::Quiet),
            ((3, 1, 2, 0), 1, MonitorState::Unknown),
            ((3, 1, 2, 1), 1, MonitorState::Firing),
            ((3, 0, 3, 1), 2, MonitorState::Quiet),
            ((3, 0, 3, 2), 2, MonitorState::Firing),
            ((3, 0, 3, 0), 0, MonitorState::Quiet),
        ];
        for ((changed, pending, compared, worse), nodes, state) in table {
            let counts = Comparisons {
                changed,
                pending,
                compared,
                worse,
            };
            assert_eq!(counts.find_state(&limit(nodes)), state, "{counts:?}");
        }
    }
}
