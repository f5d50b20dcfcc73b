//! References in limits and counts of a gate, resolved to plain values on one node.

use std::collections::BTreeMap;

use super::catalogue::TEXT;
use super::gate::{Gate, Limit};
use crate::facts::{DiskTransport, Facts};
use crate::profiles::HardwareProfile;
use crate::stacks::ConvergePlan;

/// The values that limits and counts may refer to.
#[derive(Clone, Copy, Debug)]
pub struct Reference<'a> {
    pub profile: &'a HardwareProfile,
    pub facts: &'a Facts,
    pub stack: Option<&'a ConvergePlan>,
    pub variables: &'a BTreeMap<String, String>,
}

/// The reason why a reference has no value.
pub(super) enum Unresolved {
    /// The node or its model has no such value.
    Absent(String),
    /// The reference is malformed.
    Wrong(String),
}

impl Unresolved {
    pub(super) fn into_reason(self) -> String {
        match self {
            Self::Absent(why) | Self::Wrong(why) => why,
        }
    }
}

/// Resolves a limit to a plain value: looks up `profile:NAME`, `variable:NAME` and `stack:NAME`,
/// and returns other limits as they are.
pub(super) fn resolve_limit(
    limit: &Limit,
    unit: &str,
    reference: &Reference<'_>,
) -> Result<Limit, Unresolved> {
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
        _ => Err(Unresolved::Wrong(format!("{text:?} is not a limit"))),
    }
}

/// A threshold of the profile, or a number that every profile has.
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
        // NCCL collectives run a process (rank) per GPU.
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

/// Returns the number of entities each criterion must measure; 1 without `count`. Zero is an error,
/// because a gate must measure at least one entity.
pub(super) fn expected_entities(gate: &Gate, reference: &Reference<'_>) -> Result<u64, Unresolved> {
    gate.count
        .as_deref()
        .map_or(Ok(1), |count| resolve_count(or_more(count).0, reference))
}

/// Splits `>=` from a gate's count, and returns whether `>=` was present. With `>=` the node may
/// have more entities, and every entity must meet the limits.
pub(super) fn or_more(count: &str) -> (&str, bool) {
    match count.strip_prefix(">=") {
        Some(least) => (least, true),
        None => (count, false),
    }
}

/// Resolves a count to a number on this node.
pub(super) fn resolve_count(count: &str, reference: &Reference<'_>) -> Result<u64, Unresolved> {
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
                    "the profile's {name} is {value} {unit}, which is not a count"
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

/// A count as an integer; `None` for fractions, negative numbers and numbers above `u32::MAX`.
pub(super) fn whole(value: f64) -> Option<u64> {
    (value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value)).then_some(value as u64)
}

/// References allowed in `count`, besides a number and any `profile:NAME`.
pub(super) const COUNTS: [&str; 5] = [
    "facts:disks",
    "facts:nvme_disks",
    "facts:sata_disks",
    "facts:gpus",
    "stack:mounts",
];
