//! From samples to a verdict: every criterion of a gate against every entity that must be there. What is missing, in another unit or not a number
//! is an error, never a pass.

use std::collections::BTreeSet;

use super::catalogue::{Metric, Parser, TEXT};
use super::gate::{Criterion, Gate, Limit, Op, Value};
use super::mode::Mode;
use super::resolve::{
    Reference, Unresolved, expected_entities, or_more, resolve_count, resolve_limit,
};
use super::result::{Measured, Verdict};

/// One value a parser read, in the unit its metric is listed with.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub metric: &'static str,
    /// The disk, job, GPU or link it belongs to; empty for the node itself.
    pub entity: String,
    pub value: Value,
}

/// A verdict with all that led to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    pub verdict: Verdict,
    pub reason: String,
    pub measured: Vec<Measured>,
}

/// Holds samples against a gate's criteria. `fail` when any measured value misses its limit; else `error` when anything that was asked for could not be
/// told; else `pass`.
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
        match hold(gate, criterion, samples, reference) {
            Ok(values) => {
                let entities = match &criterion.best {
                    Some(_) => values.len() as u64,
                    None if alone(gate, criterion) => 1,
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
                        named(criterion)
                    ));
                }
                measured.extend(values);
            }
            Err(why) => unknown.push(why),
        }
    }
    conclude(measured, unknown)
}

/// Why there is nothing to hold on this node, before anything is run: no threshold, no variable, nothing of what it counts, or a profile that requires
/// what no parser is trusted with. What is there and does not fit is for [`assess`] to tell.
pub fn unmeasurable(gate: &Gate, reference: &Reference<'_>) -> Option<String> {
    let demanded = reference
        .profile
        .gates
        .get(&gate.id)
        .is_some_and(|policy| policy.mode == Mode::Required);
    if demanded && Parser::find(&gate.parser).is_some_and(|parser| parser.experimental) {
        return Some(format!(
            "the profile requires it, and parser {} is experimental",
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

/// Whether a criterion is met by one value: it names whose, or its metric is the node's own.
fn alone(gate: &Gate, criterion: &Criterion) -> bool {
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

/// A metric, and whose it is where only that one counts.
fn named(criterion: &Criterion) -> String {
    match &criterion.of {
        Some(of) => format!("{} of {of}", criterion.metric),
        None => criterion.metric.clone(),
    }
}

fn conclude(measured: Vec<Measured>, unknown: Vec<String>) -> Assessment {
    let missed: Vec<String> = measured
        .iter()
        .filter(|value| value.verdict == Verdict::Fail)
        .map(sentence)
        .collect();
    let (verdict, reason) = match (missed.is_empty(), unknown.is_empty()) {
        (false, _) => (Verdict::Fail, shortened(&missed)),
        (true, false) => (Verdict::Error, shortened(&unknown)),
        (true, true) => (
            Verdict::Pass,
            shortened(&measured.iter().map(sentence).collect::<Vec<_>>()),
        ),
    };
    Assessment {
        verdict,
        reason,
        measured,
    }
}

/// One criterion against all samples of its metric.
fn hold(
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
                "{metric}: parser {} gives no such metric",
                gate.parser
            ));
        }
        Some(known) if known != unit => {
            return Err(format!(
                "{metric}: is measured in {known}, the criterion says {unit}"
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
            let holds =
                compare(&sample.value, *op, &limit).map_err(|why| format!("{metric}: {why}"))?;
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

/// The best so many; a list with somebody twice in it has none.
fn best_of(mut held: Vec<Measured>, op: Op, wanted: u64) -> Result<Vec<Measured>, String> {
    let seen: BTreeSet<&str> = held
        .iter()
        .map(|measured| measured.entity.as_str())
        .collect();
    if seen.len() != held.len() || (held.len() as u64) < wanted {
        return Err(format!(
            "measured {} times, for {}; the best {wanted} are wanted",
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

fn compare(value: &Value, op: Op, limit: &Limit) -> Result<bool, String> {
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
            Op::AtLeast | Op::AtMost => Err("words are only equal or not equal".into()),
        },
        (Limit::Number(_), Limit::Text(_)) | (Limit::Text(_), Limit::Number(_)) => {
            Err("a number and a word do not compare".into())
        }
    }
}

fn sentence(measured: &Measured) -> String {
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
        "{metric}{of} is {}{unit}, wanted {op} {}",
        shown(value),
        shown(limit)
    )
}

/// A value as people read it: at most three digits after the point.
fn shown(value: &Value) -> String {
    match value {
        Limit::Number(number) => {
            let text = format!("{number:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Limit::Text(text) => text.clone(),
    }
}

/// The first few sentences; the rest is counted, and stands in `measured`.
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
