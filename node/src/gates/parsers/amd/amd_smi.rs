//! Parser for `amd-smi metric --json`: a list of GPUs, or in newer releases an object with a list.
//! Numbers carry their unit, or are `N/A`. An APU has no section `pcie`, and a guest has no section
//! `ecc` (ROCm/rocm-systems, amdsmi_cli/subcommands/metric.py).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::gates::parsers::{Answer, Reading, json, members, scan};

const GPUS_MAX: usize = 256;
const UNSUPPORTED: &str = "N/A";

#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Listed(Vec<Gpu>),
    Held { gpu_data: Vec<Gpu> },
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Gpu(#[serde(deserialize_with = "members")] BTreeMap<String, Value>);

/// A place of a metric in a GPU's entry, with the releases of ROCm that have the place.
struct Place {
    metric: &'static str,
    section: &'static str,
    key: &'static str,
    /// Empty for a count.
    unit: &'static str,
    seen: &'static str,
}

const fn at(metric: &'static str, section: &'static str, key: &'static str) -> Place {
    Place {
        metric,
        section,
        key,
        unit: "",
        seen: "6 and 7",
    }
}

const PLACES: &[Place] = &[
    Place {
        unit: "W",
        ..at("gpu.power_draw", "power", "socket_power")
    },
    Place {
        unit: "C",
        ..at("gpu.temperature", "temperature", "hotspot")
    },
    Place {
        unit: "C",
        ..at("gpu.memory_temperature", "temperature", "mem")
    },
    at("gpu.pcie_width", "pcie", "width"),
    Place {
        unit: "GT/s",
        ..at("gpu.pcie_speed", "pcie", "speed")
    },
    at("gpu.pcie_replays", "pcie", "replay_count"),
    at(
        "gpu.ecc_corrected_volatile",
        "ecc",
        "total_correctable_count",
    ),
    at(
        "gpu.ecc_uncorrected_volatile",
        "ecc",
        "total_uncorrectable_count",
    ),
    Place {
        unit: "%",
        ..at("gpu.utilization", "usage", "gfx_activity")
    },
    // amd-smi counts a MB as 2^20 bytes: 192 GiB of memory are shown as 196592.
    Place {
        unit: "MB",
        ..at("gpu.memory_total", "mem_usage", "total_vram")
    },
    Place {
        unit: "MB",
        ..at("gpu.memory_used", "mem_usage", "used_vram")
    },
];

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("amd-smi failed: {}", answer.reason()));
    }
    let gpus = match json(answer.text)? {
        Document::Listed(gpus) | Document::Held { gpu_data: gpus } => gpus,
    };
    if gpus.is_empty() || gpus.len() > GPUS_MAX {
        return Err(format!("it tells of {} GPUs", gpus.len()));
    }
    let mut reading = Reading::default();
    reading.count("gpu.count", gpus.len());
    for (index, Gpu(gpu)) in gpus.iter().enumerate() {
        let number = gpu.get("gpu").ok_or("a GPU has no number")?;
        if number.as_u64() != Some(index as u64) {
            return Err(format!(
                "it tells of GPU {} where GPU {index} should be",
                scan::word(&number.to_string())
            ));
        }
        let entity = format!("GPU {index}");
        for place in PLACES {
            match read_place(gpu, place) {
                Ok(None) => {}
                Ok(Some(number)) => reading.add_of(place.metric, &entity, number),
                Err(why) => {
                    let reason = format!("{entity}: {why} (ROCm: {})", place.seen);
                    reading.leave(place.metric, reason);
                }
            }
        }
    }
    Ok(reading)
}

/// Reads a value. A value of `N/A`, a whole section of `N/A` and a missing section give `None`.
///
/// # Errors
/// Returns a sentence for a section without the key, for another unit, and for no number.
fn read_place(gpu: &BTreeMap<String, Value>, place: &Place) -> Result<Option<f64>, String> {
    let Place {
        section, key, unit, ..
    } = place;
    let Some(held) = gpu.get(*section) else {
        return Ok(None);
    };
    if held.as_str() == Some(UNSUPPORTED) {
        return Ok(None);
    }
    let value = held
        .get(*key)
        .ok_or_else(|| format!("{section} does not tell {key}"))?;
    let unknown = || format!("{key} is {}", scan::word(&value.to_string()));
    let number = match (value.get("value"), value.get("unit")) {
        (Some(number), Some(stated)) if stated.as_str() == Some(*unit) => number,
        (None, None) if unit.is_empty() || value.as_str() == Some(UNSUPPORTED) => value,
        _ => return Err(unknown()),
    };
    if number.as_str() == Some(UNSUPPORTED) {
        return Ok(None);
    }
    number.as_f64().map(Some).ok_or_else(unknown)
}
