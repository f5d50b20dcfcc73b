//! Parser for a value of nvidia-smi. A value unsupported by the card is omitted. A value that the
//! driver could not read is an error of the whole answer, because the fault under search may be the
//! cause; so is a value stated twice. A value in an unknown format is an error for the gates that
//! ask for the value. For a lost GPU, or a GPU waiting for a reset, nvidia-smi prints the state in
//! place of any value. Such a GPU is reported as unreachable, and the value is omitted. The state
//! is a fault, like the other texts of NVML that name a fault of the GPU.

use std::collections::BTreeMap;

use super::fields::{FIELDS, Field, Kind, Place};
use crate::gates::parsers::{Reading, Unread, scan};

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
/// Words of a driver that could not read a value, in lower case, anywhere in the value.
const TROUBLES: [&str; 6] = [
    "unknown error",
    "gpu is lost",
    "err!",
    "requires reset",
    "insufficient permissions",
    "error",
];
/// Texts of NVML for a failed query, in lower case, as the whole value (nvml.h,
/// nvmlErrorString). The longer texts are above.
const FAILED_QUERIES: [&str; 6] = [
    "uninitialized",
    "invalid argument",
    "driver not loaded",
    "timeout",
    "insufficient memory",
    "the operating system has blocked the request",
];
/// Texts of NVML that name a fault of the GPU, in lower case, as the whole value. nvidia-smi ends
/// with the same faults as its exit status.
const FAULTS: [&str; 3] = [
    "insufficient external power",
    "irq issue",
    "corrupted inforom",
];
/// Metrics of the current and of the maximum width.
const WIDTHS: [&str; 2] = ["gpu.pcie_width", "gpu.pcie_width_max"];
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

/// Selects the places of a field in a format.
pub(super) type Places = fn(&Field) -> &'static [Place];

/// Adds all values of a GPU to the reading.
pub(super) fn add(
    reading: &mut Reading,
    entity: &str,
    leaves: &Leaves,
    places: Places,
) -> Result<(), String> {
    let former = reading.unread.len();
    for field in FIELDS {
        let stated = |place: &&Place| place.paths.iter().all(|path| leaves.contains_key(*path));
        if let Some(place) = places(field).iter().find(stated) {
            add_field(reading, entity, field, place, leaves)?;
        }
    }
    lost_lanes(reading, entity, former);
    let unreachable = leaves
        .iter()
        .find(|(_, text)| UNREACHABLE.contains(&bare(text)));
    reading.add_of("gpu.unreachable", entity, u8::from(unreachable.is_some()));
    reading.faults.extend(
        unreachable.map(|(path, text)| format!("{entity}: {} is {text:?}", scan::word(path))),
    );
    Ok(())
}

/// Adds the value of a field to the reading, or the reason of a value in an unknown format.
///
/// # Errors
/// Returns a sentence for a value that the driver could not read, and for a value stated twice.
fn add_field(
    reading: &mut Reading,
    entity: &str,
    field: &Field,
    place: &Place,
    leaves: &Leaves,
) -> Result<(), String> {
    let mut sum = Some(0.0);
    for path in place.paths {
        let text = leaves.get(*path).map(String::as_str).unwrap_or_default();
        match read(text, field.kind) {
            Ok(Leaf::Nothing) => sum = None,
            Ok(Leaf::Number(number)) => sum = sum.map(|sum| sum + number),
            Ok(Leaf::Word(word)) => {
                reading.add_word(field.metric, entity, &word);
                sum = None;
            }
            Err(why) => {
                let (said, seen) = (scan::word(text), place.seen);
                let reason = format!("{entity}: {path} is {said:?}: {why} (drivers: {seen})");
                if is_fault(bare(text)) {
                    reading.faults.push(format!("{entity}: {path} is {said:?}"));
                    return Ok(());
                }
                if text == TWICE || trouble(bare(text)) {
                    return Err(reason);
                }
                reading.leave(field.metric, reason);
                return Ok(());
            }
        }
    }
    if let Some(sum) = sum {
        reading.add_of(field.metric, entity, sum);
    }
    Ok(())
}

/// Adds the number of unused PCIe lanes: the maximum width minus the current width. The number is
/// unread where one of both widths is among the unread values from `former` on.
fn lost_lanes(reading: &mut Reading, entity: &str, former: usize) {
    let is_width = |unread: &&Unread| WIDTHS.contains(&unread.metric);
    let unread = reading.unread.iter().skip(former).find(is_width);
    if let Some(reason) = unread.map(|unread| unread.reason.clone()) {
        reading.leave("gpu.pcie_width_lost", reason);
    }
    let of = |metric: &str| reading.number(metric, entity);
    let [width, max] = WIDTHS;
    if let (Some(width), Some(max)) = (of(width), of(max)) {
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

/// Returns whether a text stands for a value unsupported by the card.
pub(super) fn is_unavailable(text: &str) -> bool {
    UNAVAILABLE.contains(&bare(text))
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
        Kind::Word if bare.is_empty() || bare == TWICE || trouble(bare) || is_fault(bare) => {
            Err("no answer".into())
        }
        Kind::Status if bare.is_empty() || bare == TWICE || has_trouble(bare) => {
            Err("no answer".into())
        }
        Kind::Word | Kind::Status => Ok(Leaf::Word(scan::word(bare))),
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
    has_trouble(text) || FAILED_QUERIES.contains(&lower.as_str())
}

/// Returns whether a text of NVML in place of a value names a fault of the GPU.
fn is_fault(text: &str) -> bool {
    FAULTS.contains(&text.to_ascii_lowercase().as_str())
}

fn has_trouble(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    TROUBLES.iter().any(|word| lower.contains(word))
}
