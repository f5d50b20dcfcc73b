//! One value of nvidia-smi. What a card does not have is no value; what the driver could not find out, or what is not understood, is an error: it may
//! be the very fault that is looked for. A GPU that is gone or waits for a reset says so in the place of any value: that is told of the GPU, and the value is not.

use std::collections::BTreeMap;

use super::fields::{FIELDS, Field, Kind};
use crate::gates::parsers::{Reading, scan};

/// How nvidia-smi says that a card does not have something.
const UNAVAILABLE: [&str; 4] = [
    "N/A",
    "Not Supported",
    "Requested functionality has been deprecated",
    "Not Available",
];
/// What NVML says of a GPU that it cannot ask any more (nvmlErrorString: NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED).
const UNREACHABLE: [&str; 2] = ["GPU is lost", "GPU requires reset"];
/// Values of one GPU by their path or column; a path that stands there twice is [`TWICE`].
pub(super) type Leaves = BTreeMap<String, String>;
/// In place of a value that two lines of one GPU claim.
const TWICE: &str = "(two values)";

/// Keeps a value; of two for one path neither is believed.
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

/// Which of a field's paths a format uses.
pub(super) type Places = fn(&Field) -> &'static [&'static [&'static str]];

/// Adds all that one GPU tells.
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

/// Lanes that could be there and are not.
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

/// CSV puts what is no value in brackets.
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
        // Degrees below the limit; above it they are negative.
        Kind::Margin => {
            let degrees = bare.strip_suffix(" C").unwrap_or(bare);
            match degrees.strip_prefix('-').map(scan::number) {
                Some(over) => number(over.map(|_| 0.0), "°C"),
                None => number(scan::number(degrees), "°C"),
            }
        }
        // °C with its unit in the long formats, bare in CSV.
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

/// Words that stand for a failure of the driver to answer.
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
