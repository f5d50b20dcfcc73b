//! From samples to a verdict: every criterion of a gate against every entity that must be there. What is missing, in another unit or not a number
//! is an error, never a pass.

use std::collections::{BTreeMap, BTreeSet};

use super::catalogue::{Metric, Parser, TEXT};
use super::gate::{Criterion, Gate, Limit, Mode, Op, Value};
use super::result::{Measured, Verdict};
use crate::facts::{DiskTransport, Facts};
use crate::profiles::HardwareProfile;
use crate::stacks::ConvergePlan;

/// One value a parser read, in the unit its metric is listed with.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub metric: &'static str,
    /// The disk, job, GPU or link it belongs to; empty for the node itself.
    pub entity: String,
    pub value: Value,
}

/// What limits and counts may refer to.
#[derive(Clone, Copy, Debug)]
pub struct Reference<'a> {
    pub profile: &'a HardwareProfile,
    pub facts: &'a Facts,
    pub stack: Option<&'a ConvergePlan>,
    pub variables: &'a BTreeMap<String, String>,
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
        unknown.push(why.told());
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
        let limit = resolve(&criterion.limit, &criterion.unit, reference).err();
        let best = || {
            criterion
                .best
                .as_deref()
                .and_then(|best| counted_by(best, reference).err())
        };
        let why = limit.or_else(best).and_then(absent)?;
        Some(format!("{}: {why}", criterion.metric))
    });
    counted.or(limits)
}

/// Why a reference gives no value.
enum Unresolved {
    /// There is none on this node, or for this model.
    Absent(String),
    /// It is written wrongly.
    Wrong(String),
}

impl Unresolved {
    fn told(self) -> String {
        match self {
            Self::Absent(why) | Self::Wrong(why) => why,
        }
    }
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
    let limit =
        resolve(limit, unit, reference).map_err(|why| format!("{metric}: {}", why.told()))?;
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
    let wanted = counted_by(best, reference).map_err(|why| format!("{metric}: {}", why.told()))?;
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

/// A limit as a plain value: `profile:NAME`, `variable:NAME` and `stack:NAME` are looked up, the rest is itself.
fn resolve(limit: &Limit, unit: &str, reference: &Reference<'_>) -> Result<Limit, Unresolved> {
    let Limit::Text(text) = limit else {
        return Ok(limit.clone());
    };
    let Some((place, name)) = text.split_once(':') else {
        return Ok(limit.clone());
    };
    let profile = reference.profile;
    match place {
        "profile" if unit == TEXT => {
            let word = profile
                .words
                .get(name)
                .map(|word| Limit::Text(word.value.clone()));
            word.ok_or_else(|| {
                Unresolved::Absent(format!(
                    "the profile of {} has no word {name}",
                    profile.model
                ))
            })
        }
        "profile" => {
            let absent = || {
                Unresolved::Absent(format!(
                    "the profile of {} has no threshold {name}",
                    profile.model
                ))
            };
            let (value, its_unit) = profile_number(name, profile).ok_or_else(absent)?;
            match its_unit == unit {
                true => Ok(Limit::Number(value)),
                false => Err(Unresolved::Wrong(format!(
                    "the profile's {name} is in {its_unit}, the criterion in {unit}"
                ))),
            }
        }
        "variable" => {
            let value = reference.variables.get(name).cloned().map(Limit::Text);
            value.ok_or_else(|| Unresolved::Absent(format!("no variable {name} was given")))
        }
        "stack" => stack_number(name, reference.stack).map(|value| Limit::Number(value as f64)),
        _ if unit == TEXT => Ok(limit.clone()),
        _ => Err(Unresolved::Wrong(format!("{text:?} is no limit"))),
    }
}

/// A threshold of the profile, or one of the numbers every profile has.
pub(super) fn profile_number<'a>(
    name: &str,
    profile: &'a HardwareProfile,
) -> Option<(f64, &'a str)> {
    if let Some(threshold) = profile.thresholds.get(name) {
        return Some((threshold.value, &threshold.unit));
    }
    match name {
        "sockets" => Some((f64::from(profile.sockets), "sockets")),
        "cores_per_socket" => Some((f64::from(profile.cores_per_socket), "cores")),
        "memory_mib" => Some((profile.memory_mib as f64, "MiB")),
        "nics" => Some((f64::from(profile.nics), "NICs")),
        "disks" => Some((profile_disks(profile) as f64, "disks")),
        "gpus" => profile
            .gpus
            .as_ref()
            .map(|gpus| (f64::from(gpus.count), "GPUs")),
        // One process for each GPU, as collectives count.
        "ranks" => profile
            .gpus
            .as_ref()
            .map(|gpus| (f64::from(gpus.count), "ranks")),
        _ => None,
    }
}

fn profile_disks(profile: &HardwareProfile) -> u64 {
    profile.disks.iter().map(|disk| u64::from(disk.count)).sum()
}

fn stack_number(name: &str, stack: Option<&ConvergePlan>) -> Result<u64, Unresolved> {
    let stack =
        stack.ok_or_else(|| Unresolved::Absent("no stack was given to compare with".into()))?;
    match name {
        "packages" => Ok(stack.packages.len() as u64),
        "services" => Ok(stack.services.len() as u64),
        "kernel_args" => Ok(stack.kernel_args.len() as u64),
        "mounts" => Ok(stack.mounts().len() as u64),
        _ => Err(Unresolved::Wrong(format!("a stack has no number {name}"))),
    }
}

/// How many entities each criterion must see; one without `count`. Zero is no answer: a gate that measures nothing says nothing.
fn expected_entities(gate: &Gate, reference: &Reference<'_>) -> Result<u64, Unresolved> {
    gate.count
        .as_deref()
        .map_or(Ok(1), |count| counted_by(or_more(count).0, reference))
}

/// A gate's count without `>=`, and whether it had it: there may be more, and each is held against the limits.
pub(super) fn or_more(count: &str) -> (&str, bool) {
    match count.strip_prefix(">=") {
        Some(least) => (least, true),
        None => (count, false),
    }
}

/// What a count comes to on this node.
fn counted_by(count: &str, reference: &Reference<'_>) -> Result<u64, Unresolved> {
    let Reference { profile, facts, .. } = reference;
    let disks = |of| {
        facts
            .disks
            .iter()
            .filter(|disk| disk.transport == of)
            .count() as u64
    };
    let expected = match count {
        "profile:gpus" => profile
            .gpus
            .as_ref()
            .map_or(0, |gpus| u64::from(gpus.count)),
        "facts:disks" => facts.disks.len() as u64,
        "facts:nvme_disks" => disks(DiskTransport::Nvme),
        "facts:sata_disks" => disks(DiskTransport::Sata),
        "facts:gpus" => facts.gpus.len() as u64,
        "stack:mounts" => stack_number("mounts", reference.stack)?,
        reference if reference.starts_with("profile:") => {
            let name = reference.trim_start_matches("profile:");
            let absent = || {
                Unresolved::Absent(format!(
                    "the profile of {} has no threshold {name}",
                    profile.model
                ))
            };
            let (value, unit) = profile_number(name, profile).ok_or_else(absent)?;
            let broken = || {
                Unresolved::Wrong(format!(
                    "the profile's {name} is {value} {unit}: nothing is counted by that"
                ))
            };
            whole(value).ok_or_else(broken)?
        }
        number => number.parse().map_err(|_| {
            Unresolved::Wrong(format!(
                "count {number:?} is neither a number nor a known reference"
            ))
        })?,
    };
    match expected {
        0 => Err(Unresolved::Absent(format!(
            "nothing to measure: {count} is 0 on this node"
        ))),
        expected => Ok(expected),
    }
}

/// A number of things: no part of one, and no more than can be told apart.
pub(super) fn whole(value: f64) -> Option<u64> {
    (value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value)).then_some(value as u64)
}

/// References that `count` may hold, besides a number and any `profile:NAME`.
pub(super) const COUNTS: [&str; 5] = [
    "facts:disks",
    "facts:nvme_disks",
    "facts:sata_disks",
    "facts:gpus",
    "stack:mounts",
];

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
