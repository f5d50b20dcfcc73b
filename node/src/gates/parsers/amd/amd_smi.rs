//! Parser for `amd-smi metric --json`: a list of GPUs, or an object with the list in newer
//! versions. Numbers carry their unit, or are `N/A`.

use serde::Deserialize;
use serde_json::Value;

use crate::gates::parsers::{Answer, Reading, json, scan};

const GPUS_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Listed(Vec<Gpu>),
    Held { gpu_data: Vec<Gpu> },
}

#[derive(Deserialize)]
struct Gpu {
    gpu: usize,
    usage: Value,
    power: Value,
    temperature: Value,
    pcie: Value,
    ecc: Value,
    mem_usage: Value,
}

/// Section and key in a GPU's entry, the metric, and the expected unit. Counts have an empty unit.
const PLACES: [(&str, &str, &str, &str); 9] = [
    ("power", "socket_power", "gpu.power_draw", "W"),
    ("temperature", "hotspot", "gpu.temperature", "C"),
    ("temperature", "mem", "gpu.memory_temperature", "C"),
    ("pcie", "width", "gpu.pcie_width", ""),
    ("pcie", "speed", "gpu.pcie_speed", "GT/s"),
    ("pcie", "replay_count", "gpu.pcie_replays", ""),
    (
        "ecc",
        "total_correctable_count",
        "gpu.ecc_corrected_volatile",
        "",
    ),
    (
        "ecc",
        "total_uncorrectable_count",
        "gpu.ecc_uncorrected_volatile",
        "",
    ),
    ("usage", "gfx_activity", "gpu.utilization", "%"),
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
    for (index, gpu) in gpus.iter().enumerate() {
        if gpu.gpu != index {
            return Err(format!(
                "it tells of GPU {} where GPU {index} should be",
                gpu.gpu
            ));
        }
        let entity = format!("GPU {index}");
        for (section, key, metric, unit) in PLACES {
            let held = match section {
                "power" => &gpu.power,
                "temperature" => &gpu.temperature,
                "pcie" => &gpu.pcie,
                "ecc" => &gpu.ecc,
                _ => &gpu.usage,
            };
            add(&mut reading, &entity, metric, held, key, unit)?;
        }
        // amd-smi counts a MB as 2^20 bytes: 192 GiB of memory are shown as 196592.
        add(
            &mut reading,
            &entity,
            "gpu.memory_total",
            &gpu.mem_usage,
            "total_vram",
            "MB",
        )?;
        add(
            &mut reading,
            &entity,
            "gpu.memory_used",
            &gpu.mem_usage,
            "used_vram",
            "MB",
        )?;
    }
    Ok(reading)
}

/// Adds a value to the reading. Adds no sample for a value of `N/A`, or for a whole section of
/// `N/A`. Fails on a missing key or another unit.
fn add(
    reading: &mut Reading,
    entity: &str,
    metric: &'static str,
    held: &Value,
    key: &str,
    unit: &str,
) -> Result<(), String> {
    if held.as_str() == Some("N/A") {
        return Ok(());
    }
    let value = held
        .get(key)
        .ok_or_else(|| format!("{entity} does not tell {key}"))?;
    let unknown = || format!("{entity}: {key} is {}", scan::word(&value.to_string()));
    let number = match (value.get("value"), value.get("unit")) {
        (Some(number), Some(stated)) if stated.as_str() == Some(unit) => number,
        (None, None) if unit.is_empty() || value.as_str() == Some("N/A") => value,
        _ => return Err(unknown()),
    };
    if number.as_str() == Some("N/A") {
        return Ok(());
    }
    reading.add_of(metric, entity, number.as_f64().ok_or_else(unknown)?);
    Ok(())
}
