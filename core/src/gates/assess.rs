//! Turns samples into a verdict. Every criterion of a gate is compared for every expected entity. A
//! sample that is missing, has another unit or is not a number gives an error, never a pass.

use std::collections::BTreeSet;

use super::catalogue::{Metric, Parser, TEXT};
use super::gate::{Criterion, Gate, Limit, Op, Value};
use super::mode::Mode;
use super::resolve::{
    Reference, Unresolved, expected_entities, or_more, resolve_count, resolve_limit,
};
use super::result::{Measured, Verdict};

/// A value read by a parser, in the unit listed for its metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub metric: &'static str,
    /// The disk, job, GPU or link measured; empty for the node itself.
    pub entity: String,
    pub value: Value,
}

/// A verdict, with the reason and the measured values behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    pub verdict: Verdict,
    pub reason: String,
    pub measured: Vec<Measured>,
}

/// Compares samples with a gate's criteria. Returns `fail` if any measured value misses its limit.
/// Otherwise returns `error` if any criterion could not be decided, and `pass` if none is left.
pub fn assess(gate: &Gate, samples: &[Sample], reference: &Reference<'_>) -> Assessment {
    let mut measured = Vec::new();
    let mut unknown = Vec::new();
    let entities = expected_entities(gate, reference).unwrap_or_else(|why| {
        unknown.push(why.into_reason());
        0
    });
    let more = gate.count.as_deref().is_some_and(|count| or_more(count).1);
    if gate.criteria.is_empty() {
        unknown.push("the gate has no criteria".into());
    }
    for criterion in &gate.criteria {
        match compare_samples(gate, criterion, samples, reference) {
            Ok(values) => {
                let entities = match &criterion.best {
                    Some(_) => values.len() as u64,
                    None if is_single_value(gate, criterion) => 1,
                    None => entities,
                };
                let enough = |seen: u64| {
                    seen == entities || more && criterion.best.is_none() && seen > entities
                };
                let seen = values
                    .iter()
                    .map(|value| value.entity.as_str())
                    .collect::<BTreeSet<_>>()
                    .len() as u64;
                if !enough(seen) || values.len() as u64 != seen {
                    let wanted = if more { "at least " } else { "" };
                    unknown.push(format!(
                        "{}: measured {seen} times, expected {wanted}{entities}",
                        name_metric(criterion)
                    ));
                }
                measured.extend(values);
            }
            Err(why) => unknown.push(why),
        }
    }
    conclude(measured, unknown)
}

/// Returns why the gate cannot be measured on this node, before the tool runs. Reasons are a
/// missing threshold, a missing variable, zero entities, or a required gate with an experimental
/// parser. Values that exist but are malformed are reported by [`assess`].
pub fn unmeasurable(gate: &Gate, reference: &Reference<'_>) -> Option<String> {
    let demanded = reference
        .profile
        .gates
        .get(&gate.id)
        .is_some_and(|policy| policy.mode == Mode::Required);
    if demanded && Parser::find(&gate.parser).is_some_and(|parser| parser.experimental) {
        return Some(format!(
            "the profile requires the gate, but parser {} is experimental",
            gate.parser
        ));
    }
    let absent = |unresolved: Unresolved| match unresolved {
        Unresolved::Absent(why) => Some(why),
        Unresolved::Wrong(_) => None,
    };
    let counted = expected_entities(gate, reference).err().and_then(absent);
    let limits = gate.criteria.iter().find_map(|criterion| {
        let limit = resolve_limit(&criterion.limit, &criterion.unit, reference).err();
        let best = || {
            criterion
                .best
                .as_deref()
                .and_then(|best| resolve_count(best, reference).err())
        };
        let why = limit.or_else(best).and_then(absent)?;
        Some(format!("{}: {why}", criterion.metric))
    });
    counted.or(limits)
}

/// Returns whether the criterion is met by a single value: the criterion names the entity (`of`),
/// or the metric belongs to the node.
fn is_single_value(gate: &Gate, criterion: &Criterion) -> bool {
    let metric = |parser: &Parser| {
        parser
            .metrics
            .iter()
            .find(|metric| metric.name == criterion.metric)
            .copied()
    };
    let of_node = |metric: Metric| metric.per.is_empty() && gate.each.is_none();
    criterion.of.is_some()
        || Parser::find(&gate.parser)
            .and_then(metric)
            .is_some_and(of_node)
}

/// Formats the metric name, with the entity if the criterion names a single entity.
fn name_metric(criterion: &Criterion) -> String {
    match &criterion.of {
        Some(of) => format!("{} of {of}", criterion.metric),
        None => criterion.metric.clone(),
    }
}

fn conclude(measured: Vec<Measured>, unknown: Vec<String>) -> Assessment {
    let missed: Vec<String> = measured
        .iter()
        .filter(|value| value.verdict == Verdict::Fail)
        .map(describe_measured)
        .collect();
    let (verdict, reason) = match (missed.is_empty(), unknown.is_empty()) {
        (false, _) => (Verdict::Fail, shortened(&missed)),
        (true, false) => (Verdict::Error, shortened(&unknown)),
        (true, true) => (
            Verdict::Pass,
            shortened(&measured.iter().map(describe_measured).collect::<Vec<_>>()),
        ),
    };
    Assessment {
        verdict,
        reason,
        measured,
    }
}

/// Compares all samples of a metric with the criterion.
fn compare_samples(
    gate: &Gate,
    criterion: &Criterion,
    samples: &[Sample],
    reference: &Reference<'_>,
) -> Result<Vec<Measured>, String> {
    let Criterion {
        metric,
        of,
        best,
        op,
        limit,
        unit,
    } = criterion;
    let known = Parser::find(&gate.parser).and_then(|parser| parser.unit(metric));
    match known {
        None => {
            return Err(format!(
                "{metric}: parser {} has no such metric",
                gate.parser
            ));
        }
        Some(known) if known != unit => {
            return Err(format!(
                "{metric}: the parser's unit is {known}, the criterion's unit is {unit}"
            ));
        }
        Some(_) => {}
    }
    let limit = resolve_limit(limit, unit, reference)
        .map_err(|why| format!("{metric}: {}", why.into_reason()))?;
    let wanted = |sample: &&Sample| {
        sample.metric == metric && of.as_ref().is_none_or(|of| sample.entity == *of)
    };
    let held = samples
        .iter()
        .filter(wanted)
        .map(|sample| {
            let holds = check_limit(&sample.value, *op, &limit)
                .map_err(|why| format!("{metric}: {why}"))?;
            let verdict = if holds { Verdict::Pass } else { Verdict::Fail };
            let (metric, entity, unit) = (metric.clone(), sample.entity.clone(), unit.clone());
            Ok(Measured {
                metric,
                entity,
                value: sample.value.clone(),
                op: *op,
                limit: limit.clone(),
                unit,
                verdict,
            })
        })
        .collect::<Result<Vec<Measured>, String>>()?;
    let Some(best) = best else { return Ok(held) };
    let wanted =
        resolve_count(best, reference).map_err(|why| format!("{metric}: {}", why.into_reason()))?;
    best_of(held, *op, wanted).map_err(|why| format!("{metric}: {why}"))
}

/// Keeps the best `wanted` values. Returns an error if an entity appears twice or too few were
/// measured.
fn best_of(mut held: Vec<Measured>, op: Op, wanted: u64) -> Result<Vec<Measured>, String> {
    let seen: BTreeSet<&str> = held
        .iter()
        .map(|measured| measured.entity.as_str())
        .collect();
    if seen.len() != held.len() || (held.len() as u64) < wanted {
        return Err(format!(
            "measured {} times, for {}; the best {wanted} are expected",
            held.len(),
            seen.len()
        ));
    }
    let number = |measured: &Measured| match measured.value {
        Limit::Number(number) => number,
        Limit::Text(_) => f64::NAN,
    };
    held.sort_by(|one, other| match op {
        Op::AtLeast => number(other).total_cmp(&number(one)),
        Op::AtMost | Op::Equal | Op::NotEqual => number(one).total_cmp(&number(other)),
    });
    held.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
    Ok(held)
}

fn check_limit(value: &Value, op: Op, limit: &Limit) -> Result<bool, String> {
    match (value, limit) {
        (Limit::Number(value), Limit::Number(limit)) => {
            if !value.is_finite() || *value < 0.0 {
                return Err(format!("{value} is not a measurement"));
            }
            if !limit.is_finite() || *limit < 0.0 {
                return Err(format!("{limit} is not a limit"));
            }
            Ok(match op {
                Op::Equal => value == limit,
                Op::NotEqual => value != limit,
                Op::AtLeast => value >= limit,
                Op::AtMost => value <= limit,
            })
        }
        (Limit::Text(value), Limit::Text(limit)) => match op {
            Op::Equal => Ok(value == limit),
            Op::NotEqual => Ok(value != limit),
            Op::AtLeast | Op::AtMost => Err("words support only == and !=".into()),
        },
        (Limit::Number(_), Limit::Text(_)) | (Limit::Text(_), Limit::Number(_)) => {
            Err("a number cannot be compared with a word".into())
        }
    }
}

fn describe_measured(measured: &Measured) -> String {
    let Measured {
        metric,
        entity,
        value,
        op,
        limit,
        unit,
        ..
    } = measured;
    let of = if entity.is_empty() {
        String::new()
    } else {
        format!(" of {entity}")
    };
    let unit = if unit == TEXT {
        String::new()
    } else {
        format!(" {unit}")
    };
    format!(
        "{metric}{of} is {}{unit}, expected {op} {}",
        format_value(value),
        format_value(limit)
    )
}

/// Formats a value for people, with at most three digits after the decimal point.
fn format_value(value: &Value) -> String {
    match value {
        Limit::Number(number) => {
            let text = format!("{number:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Limit::Text(text) => text.clone(),
    }
}

/// Joins the first few sentences and counts the rest. `measured` holds all values.
fn shortened(sentences: &[String]) -> String {
    const SHOWN: usize = 4;
    let mut text = sentences
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    if let Some(more) = sentences.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        text.push_str(&format!("; and {more} more"));
    }
    text
}
