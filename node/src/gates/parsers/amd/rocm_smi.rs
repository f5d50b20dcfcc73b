//! Parser for `rocm-smi -a --showmeminfo vram --json` of ROCm 5 to 7. Every value is text and the
//! keys carry the units. For an unsupported value, a card omits the key or reports `N/A`, which may
//! have a remark: the second die of an MI250 tells no power (ROCm/rocm_smi_lib, rocm_smi.py,
//! showPower). The entry `system` is beside the cards. The driver's version is the only version in
//! the document. With the driver of the kernel, the version is the kernel's.

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

/// A key of a value, with the releases of ROCm that were seen to write the key.
#[derive(Clone, Copy)]
struct Place {
    seen: &'static str,
    key: &'static str,
}

const fn at(seen: &'static str, key: &'static str) -> Place {
    Place { seen, key }
}

/// A number of a card. The releases after 6.0 are those of rocm_smi.py in ROCm/rocm-systems.
struct Number {
    metric: &'static str,
    places: &'static [Place],
    /// The divisor to the metric's unit.
    divisor: f64,
}

const NUMBERS: &[Number] = &[
    Number {
        metric: "gpu.temperature",
        places: &[at("5 to 7", "Temperature (Sensor junction) (C)")],
        divisor: 1.0,
    },
    Number {
        metric: "gpu.memory_temperature",
        places: &[at("5 to 7", "Temperature (Sensor memory) (C)")],
        divisor: 1.0,
    },
    Number {
        metric: "gpu.power_draw",
        places: &[
            at("5 to 7", "Average Graphics Package Power (W)"),
            at(
                "6 and 7, MI300",
                "Current Socket Graphics Package Power (W)",
            ),
        ],
        divisor: 1.0,
    },
    Number {
        metric: "gpu.power_limit",
        places: &[at("5 to 7", "Max Graphics Package Power (W)")],
        divisor: 1.0,
    },
    Number {
        metric: "gpu.utilization",
        places: &[at("5 to 7", "GPU use (%)")],
        divisor: 1.0,
    },
    Number {
        metric: "gpu.memory_total",
        places: &[at("5 to 7", "VRAM Total Memory (B)")],
        divisor: MEBIBYTE,
    },
    Number {
        metric: "gpu.memory_used",
        places: &[at("5 to 7", "VRAM Total Used Memory (B)")],
        divisor: MEBIBYTE,
    },
    Number {
        metric: "gpu.pcie_replays",
        places: &[at("5 to 7", "PCIe Replay Count")],
        divisor: 1.0,
    },
];

/// A word of a card.
struct Named {
    metric: &'static str,
    places: &'static [Place],
}

const WORDS: &[Named] = &[
    Named {
        metric: "gpu.name",
        places: &[at("5 and 6", "Card series"), at("6 and 7", "Card Series")],
    },
    Named {
        metric: "gpu.vbios",
        places: &[at("5 to 7", "VBIOS version")],
    },
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
    if let Some(driver) = driver {
        reading.version("driver", &scan::word(driver));
    }
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

fn add(reading: &mut Reading, name: &str, card: &Card) -> Result<(), String> {
    let entity = card
        .text("PCI Bus")
        .and_then(scan::pci_address)
        .ok_or_else(|| format!("{name} has no PCI address"))?;
    if reading.samples.iter().any(|sample| sample.entity == entity) {
        return Err(format!("GPU {entity} stands there twice"));
    }
    for Number {
        metric,
        places,
        divisor,
    } in NUMBERS
    {
        let Some(Place { seen, key }) = places.iter().find(|place| card.0.contains_key(place.key))
        else {
            continue;
        };
        match card.value(key).map(|value| (value, scan::number(value))) {
            Some((_, Some(number))) => reading.add_of(metric, &entity, number / divisor),
            Some((value, None)) => {
                let value = scan::word(value);
                reading.leave(metric, format!("{name}: {key} is {value:?} (ROCm: {seen})"));
            }
            None => {}
        }
    }
    for Named { metric, places } in WORDS {
        if let Some(value) = places.iter().find_map(|place| card.text(place.key)) {
            reading.add_word(metric, &entity, value);
        }
    }
    add_link(reading, name, &entity, card);
    Ok(())
}

/// Adds the PCIe link: `0 (16.0GT/s x16)`.
fn add_link(reading: &mut Reading, name: &str, entity: &str, card: &Card) {
    let Some(link) = card.value("pcie clock level") else {
        return;
    };
    let both = scan::between(link, "(", ")")
        .and_then(|link| link.split_once("GT/s x"))
        .and_then(|(speed, width)| Some((scan::number(speed)?, scan::count(width)?)));
    if let Some((speed, width)) = both {
        reading.add_of("gpu.pcie_speed", entity, speed);
        reading.add_of("gpu.pcie_width", entity, width);
    } else {
        for metric in ["gpu.pcie_speed", "gpu.pcie_width"] {
            let reason = format!("{name}: link {:?} is not understood", scan::word(link));
            reading.leave(metric, reason);
        }
    }
}

impl Card {
    /// Returns the text of a value, `None` for a missing value and for `N/A`.
    fn text(&self, key: &str) -> Option<&str> {
        let text = self.0.get(key).and_then(Value::as_str)?;
        (!is_unsupported(text)).then_some(text)
    }

    /// The same as [`Self::text`], with an empty text in the place of a value that is no text.
    fn value(&self, key: &str) -> Option<&str> {
        let text = self.0.get(key)?.as_str().unwrap_or_default();
        (!is_unsupported(text)).then_some(text)
    }
}

/// Returns whether a text says that the card has no such value: `N/A`, or `N/A (Secondary die)`.
fn is_unsupported(text: &str) -> bool {
    text == "N/A" || text.starts_with("N/A (") && text.ends_with(')')
}
