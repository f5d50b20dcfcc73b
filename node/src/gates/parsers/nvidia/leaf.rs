//! Parser for a value of nvidia-smi. A value unsupported by the card is omitted. A value that the
//! driver could not read, or in an unknown format, is an error, because the fault under search may
//! be the cause. For a lost GPU, or a GPU waiting for a reset, nvidia-smi prints the state in place
//! of any value. Such a GPU is reported as unreachable, and the value is omitted.

use std::collections::BTreeMap;

use super::fields::{FIELDS, Field, Kind};
use crate::gates::parsers::{Reading, scan};

/// Words of nvidia-smi for a value unsupported by the card.
const UNAVAILABLE: [&str; 4] = [
    "N/A",
    "Not Supported",
    "Requested functionality has been deprecated",
    "Not Available",
];
/// Words of NVML for an unreachable GPU (nvmlErrorString: NVML_ERROR_GPU_IS_LOST,
/// NVML_ERROR_RESET_REQUIRED).
const UNREACHABLE: [&str; 2] = ["GPU is lost", "GPU requires reset"];
/// Values of a GPU by path or column. A duplicate path has the value [`TWICE`].
pub(super) type Leaves = BTreeMap<String, String>;
/// Placeholder for a value stated by two lines of a GPU.
const TWICE: &str = "(two values)";

/// Stores a value. A second value for a path replaces both with [`TWICE`], because neither is
/// reliable.
pub(super) fn keep(leaves: &mut Leaves, path: String, value: &str) {
    let known = leaves.contains_key(&path);
    leaves.insert(
        path,
        if known {
            TWICE.to_owned()
        } else {
            value.trim().to_owned()
        },
    );
}

/// Selects the paths of a field in a format.
pub(super) type Places = fn(&Field) -> &'static [&'static [&'static str]];

/// Adds all values of a GPU to the reading.
pub(super) fn add(
    reading: &mut Reading,
    entity: &str,
    leaves: &Leaves,
    places: Places,
) -> Result<(), String> {
    for field in FIELDS {
        let stated = places(field)
            .iter()
            .find(|paths| paths.iter().all(|path| leaves.contains_key(*path)));
        let Some(paths) = stated else { continue };
        let mut sum = Some(0.0);
        for path in *paths {
            let text = leaves.get(*path).map(String::as_str).unwrap_or_default();
            let said = |why: &str| format!("{entity}: {path} is {:?}: {why}", scan::word(text));
            match read(text, field.kind).map_err(|why| said(&why))? {
                Leaf::Nothing => sum = None,
                Leaf::Number(number) => sum = sum.map(|sum| sum + number),
                Leaf::Word(word) => {
                    reading.add_word(field.metric, entity, &word);
                    sum = None;
                }
            }
        }
        if let Some(sum) = sum {
            reading.add_of(field.metric, entity, sum);
        }
    }
    lost_lanes(reading, entity);
    let unreachable = leaves
        .iter()
        .find(|(_, text)| UNREACHABLE.contains(&bare(text)));
    reading.add_of("gpu.unreachable", entity, u8::from(unreachable.is_some()));
    reading.notes.extend(
        unreachable.map(|(path, text)| format!("{entity}: {} is {text:?}", scan::word(path))),
    );
    Ok(())
}

/// Adds the number of unused PCIe lanes: the maximum width minus the current width.
fn lost_lanes(reading: &mut Reading, entity: &str) {
    let of = |metric: &str| reading.number(metric, entity);
    if let (Some(width), Some(max)) = (of("gpu.pcie_width"), of("gpu.pcie_width_max")) {
        reading.add_of("gpu.pcie_width_lost", entity, (max - width).max(0.0));
    }
}

enum Leaf {
    Nothing,
    Number(f64),
    Word(String),
}

/// Removes the brackets around a missing value in CSV.
fn bare(text: &str) -> &str {
    text.strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text)
}

fn read(text: &str, kind: Kind) -> Result<Leaf, String> {
    let bare = bare(text);
    if UNAVAILABLE.contains(&bare) || UNREACHABLE.contains(&bare) {
        return Ok(Leaf::Nothing);
    }
    let number = |number: Option<f64>, wanted: &str| {
        number
            .map(Leaf::Number)
            .ok_or_else(|| format!("no {wanted}"))
    };
    match kind {
        Kind::Word if bare.is_empty() || bare == TWICE || trouble(bare) => Err("no answer".into()),
        Kind::Word => Ok(Leaf::Word(scan::word(bare))),
        Kind::Count => number(scan::count(bare), "count"),
        Kind::In(unit) => number(scan::quantity(bare, unit), unit),
        // `16x` in the long formats, `16` in CSV.
        Kind::Lanes => number(scan::count(bare.strip_suffix('x').unwrap_or(bare)), "width"),
        // Degrees below the limit. Above the limit, the value is negative and becomes 0.
        Kind::Margin => {
            let degrees = bare.strip_suffix(" C").unwrap_or(bare);
            match degrees.strip_prefix('-').map(scan::number) {
                Some(over) => number(over.map(|_| 0.0), "°C"),
                None => number(scan::number(degrees), "°C"),
            }
        }
        // °C, with a unit in the long formats and without a unit in CSV.
        Kind::Degrees => number(scan::number(bare.strip_suffix(" C").unwrap_or(bare)), "°C"),
        Kind::Banks => number(
            scan::count(bare.strip_suffix(" bank(s)").unwrap_or(bare)),
            "number of banks",
        ),
        Kind::Flag { off, on } => match bare {
            _ if bare == off => Ok(Leaf::Number(0.0)),
            _ if bare == on => Ok(Leaf::Number(1.0)),
            _ => Err(format!("neither {on:?} nor {off:?}")),
        },
    }
}

/// Returns whether a text reports the driver's failure to read a value.
fn trouble(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    [
        "unknown error",
        "gpu is lost",
        "err!",
        "requires reset",
        "insufficient permissions",
        "error",
    ]
    .iter()
    .any(|word| lower.contains(word))
}
