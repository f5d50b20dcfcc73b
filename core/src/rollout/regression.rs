//! A value of a gate on changed nodes, compared with the value before the change.

use serde::{Deserialize, Serialize};

use super::monitors::MonitorState;
use crate::gates::{Measured, Op, Value};
use crate::words;

/// A limit on the loss of a gate's value by the change of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Regression {
    /// Id of a gate of the pool's suite.
    pub gate: String,
    /// Metric of the gate, with a limit `>=` or `<=`.
    pub metric: String,
    /// Tolerated loss, in percent of the value before the change; 1 to 1000. A lower value is a loss
    /// under a limit `>=`, and a higher value under a limit `<=`.
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
        /// The gate has no result from the change of the node.
        NoResultAfter = "no_result_after",
        /// The gate has no earlier result with the same suite on the same hardware.
        NoResultBefore = "no_result_before",
        /// The results have no number of the metric above 0 for the same disk, GPU or link.
        NoCommonValue = "no_common_value",
    }
}

/// Returns the largest loss of a metric. Values are compared by disk, GPU or link, criterion by
/// criterion.
///
/// # Errors
/// When no two values can be compared.
pub fn compare(metric: &str, before: &[Measured], after: &[Measured]) -> Result<Loss, NotCompared> {
    let pairs = after
        .iter()
        .filter(|value| value.metric == metric)
        .filter_map(|value| {
            let is_same = |former: &&Measured| {
                (&former.metric, &former.entity, former.op, &former.unit)
                    == (&value.metric, &value.entity, value.op, &value.unit)
            };
            measure_loss(before.iter().find(is_same)?, value)
        });
    pairs
        .max_by(|one, other| one.percent.total_cmp(&other.percent))
        .ok_or(NotCompared::NoCommonValue)
}

/// Returns whether values under a limit of this kind can be compared.
pub fn is_comparable(op: Op) -> bool {
    match op {
        Op::AtLeast | Op::AtMost => true,
        Op::Equal | Op::NotEqual => false,
    }
}

fn measure_loss(before: &Measured, after: &Measured) -> Option<Loss> {
    let (Value::Number(former), Value::Number(value)) = (&before.value, &after.value) else {
        return None;
    };
    let lost = match after.op {
        Op::AtLeast => former - value,
        Op::AtMost => value - former,
        Op::Equal | Op::NotEqual => return None,
    };
    let percent = 100.0 * lost / former;
    (*former > 0.0 && percent.is_finite()).then(|| Loss {
        entity: after.entity.clone(),
        before: *former,
        after: *value,
        unit: after.unit.clone(),
        percent,
    })
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
    /// Returns the state of the signal. Nodes that cannot be compared are no evidence: without any
    /// compared node among the changed ones, the state is unknown.
    pub fn find_state(self, limit: &Regression) -> MonitorState {
        if self.worse >= limit.nodes.max(1) {
            return MonitorState::Firing;
        }
        match self.changed > 0 && (self.pending > 0 || self.compared == 0) {
            true => MonitorState::Unknown,
            false => MonitorState::Quiet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::Verdict;

    fn measured(metric: &str, entity: &str, op: Op, value: Value) -> Measured {
        Measured {
            metric: metric.to_owned(),
            entity: entity.to_owned(),
            value,
            op,
            limit: Value::Number(0.0),
            unit: "GB/s".to_owned(),
            verdict: Verdict::Pass,
        }
    }

    fn speed(entity: &str, value: f64) -> Measured {
        measured("speed", entity, Op::AtLeast, Value::Number(value))
    }

    fn latency(value: f64) -> Measured {
        measured("latency", "", Op::AtMost, Value::Number(value))
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
        let text = measured("speed", "0", Op::AtLeast, Value::Text("fast".to_owned()));
        let equal = measured("speed", "0", Op::Equal, Value::Number(100.0));
        let other_unit = Measured {
            unit: "Gb/s".to_owned(),
            ..speed("0", 100.0)
        };
        for before in [
            vec![],
            vec![speed("1", 100.0)],
            vec![speed("0", 0.0)],
            vec![speed("0", -1.0)],
            vec![speed("0", f64::NAN)],
            vec![text],
            vec![equal],
            vec![other_unit],
            vec![latency(10.0)],
        ] {
            let found = compare("speed", &before, &[speed("0", 50.0)]);
            assert_eq!(found, Err(NotCompared::NoCommonValue), "{before:?}");
        }
        let equal = [measured("speed", "0", Op::Equal, Value::Number(100.0))];
        let found = compare("speed", &equal, &equal);
        assert_eq!(found, Err(NotCompared::NoCommonValue));
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
