//! Parser for `rocm-smi -a --showmeminfo vram --json` of ROCm 5 and 6. Every value is text and the
//! keys carry the units. For an unsupported value, a card omits the key or reports `N/A`. The entry
//! `system` is beside the cards. The driver's version is the only version in the document.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::gates::parsers::{Answer, Reading, json, members, scan};

const MEBIBYTE: f64 = 1_048_576.0;
const CARDS_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(transparent)]
struct Document(#[serde(deserialize_with = "members")] BTreeMap<String, Card>);

#[derive(Deserialize)]
#[serde(transparent)]
struct Card(#[serde(deserialize_with = "members")] BTreeMap<String, Value>);

/// Keys of older and newer versions, the metric, and the divisor for the number.
const NUMBERS: [(&[&str], &str, f64); 8] = [
    (
        &["Temperature (Sensor junction) (C)"],
        "gpu.temperature",
        1.0,
    ),
    (
        &["Temperature (Sensor memory) (C)"],
        "gpu.memory_temperature",
        1.0,
    ),
    (
        &[
            "Average Graphics Package Power (W)",
            "Current Socket Graphics Package Power (W)",
        ],
        "gpu.power_draw",
        1.0,
    ),
    (&["Max Graphics Package Power (W)"], "gpu.power_limit", 1.0),
    (&["GPU use (%)"], "gpu.utilization", 1.0),
    (&["VRAM Total Memory (B)"], "gpu.memory_total", MEBIBYTE),
    (&["VRAM Total Used Memory (B)"], "gpu.memory_used", MEBIBYTE),
    (&["PCIe Replay Count"], "gpu.pcie_replays", 1.0),
];

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("rocm-smi failed: {}", answer.reason()));
    }
    // Without a GPU, or without its driver, rocm-smi may end with 0 and print no document.
    if answer.text.trim().is_empty() {
        return Err(format!("rocm-smi printed no document: {}", answer.reason()));
    }
    let Document(document) = json(answer.text)?;
    let mut reading = Reading::default();
    let driver = document
        .get("system")
        .and_then(|system| system.0.get("Driver version"))
        .and_then(Value::as_str);
    let driver = driver.ok_or("it does not tell the driver's version")?;
    if !["5.", "6."].iter().any(|major| driver.starts_with(major)) {
        return Err(format!("driver {:?} is not known", scan::word(driver)));
    }
    reading.version("driver", &scan::word(driver));
    let mut cards = 0;
    for (name, card) in document.iter().filter(|(name, _)| *name != "system") {
        if name
            .strip_prefix("card")
            .is_none_or(|number| number.parse::<u16>().is_err())
            || cards == CARDS_MAX
        {
            return Err(format!("{:?} is no card", scan::word(name)));
        }
        add(&mut reading, name, card)?;
        cards += 1;
    }
    // rocm-smi numbers the cards without a gap, so a missing number among the others means a lost
    // card.
    if let Some(missing) =
        (0..cards).find(|number| !document.contains_key(&format!("card{number}")))
    {
        return Err(format!(
            "it tells of {cards} cards and not of card{missing}"
        ));
    }
    if cards == 0 {
        return Err("it tells of no card".into());
    }
    reading.count("gpu.count", cards);
    Ok(reading)
}

fn add(reading: &mut Reading, name: &str, Card(card): &Card) -> Result<(), String> {
    let text = |key: &str| {
        card.get(key)
            .and_then(Value::as_str)
            .filter(|text| *text != "N/A")
    };
    let entity = text("PCI Bus")
        .and_then(scan::pci_address)
        .ok_or_else(|| format!("{name} has no PCI address"))?;
    if reading.samples.iter().any(|sample| sample.entity == entity) {
        return Err(format!("GPU {entity} stands there twice"));
    }
    for (keys, metric, divisor) in NUMBERS {
        let Some(key) = keys.iter().find(|key| card.contains_key(**key)) else {
            continue;
        };
        let Some(value) = text(key) else { continue };
        let number = scan::number(value)
            .ok_or_else(|| format!("{name}: {key} is {:?}", scan::word(value)))?;
        reading.add_of(metric, &entity, number / divisor);
    }
    for (keys, metric) in [
        (["Card series", "Card Series"], "gpu.name"),
        (["VBIOS version", "VBIOS version"], "gpu.vbios"),
    ] {
        if let Some(value) = keys.iter().find_map(|key| text(key)) {
            reading.add_word(metric, &entity, value);
        }
    }
    // `0 (16.0GT/s x16)`
    if let Some(link) = text("pcie clock level") {
        let (speed, width) = scan::between(link, "(", ")")
            .and_then(|link| link.split_once("GT/s x"))
            .and_then(|(speed, width)| Some((scan::number(speed)?, scan::count(width)?)))
            .ok_or_else(|| format!("{name}: link {:?} is not understood", scan::word(link)))?;
        reading.add_of("gpu.pcie_speed", &entity, speed);
        reading.add_of("gpu.pcie_width", &entity, width);
    }
    Ok(())
}
