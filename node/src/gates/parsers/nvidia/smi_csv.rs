//! Parser for `nvidia-smi --query-gpu=pci.bus_id,… --format=csv`. The header names the columns,
//! some with a unit. `noheader` is rejected, because columns without names are ambiguous. `nounits`
//! is accepted, because the header still contains the units.

use super::leaf::{self, Leaves, keep};
use super::smi_status;
use crate::gates::parsers::{Answer, Reading, scan};

const COLUMNS_MAX: usize = 512;
const GPUS_MAX: usize = 256;

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if let Some(ended) = smi_status::read_end(answer) {
        return ended;
    }
    scan::whole(answer.text)?;
    let mut lines = answer.text.lines();
    let columns = columns(lines.next().unwrap_or_default())?;
    let mut reading = Reading::default();
    let mut gpus: Vec<String> = Vec::new();
    let (mut stated, mut driver) = (None, None);
    for line in lines {
        let values: Vec<&str> = line.split(',').map(str::trim).collect();
        if values.len() != columns.len() {
            return Err(format!(
                "a row has {} values for {} columns",
                values.len(),
                columns.len()
            ));
        }
        let mut leaves = Leaves::new();
        for ((name, unit), value) in columns.iter().zip(values) {
            keep(&mut leaves, (*name).to_owned(), &with_unit(value, *unit));
        }
        let address = leaves
            .get("pci.bus_id")
            .and_then(|id| scan::pci_address(id))
            .ok_or("a row has no PCI address")?;
        if gpus.len() >= GPUS_MAX || gpus.contains(&address) {
            return Err(format!("GPU {address} stands there twice"));
        }
        if let Some(count) = leaves.get("count") {
            stated =
                Some(scan::count(count).ok_or_else(|| format!("count {count:?} is no count"))?);
        }
        match (&driver, leaves.get("driver_version")) {
            (None, Some(version)) => driver = Some(scan::word(version)),
            (Some(before), Some(version)) if before != version => {
                return Err(format!("GPUs with drivers {before} and {version}"));
            }
            _ => {}
        }
        leaf::add(&mut reading, &address, &leaves, |field| field.csv)?;
        gpus.push(address);
    }
    if gpus.is_empty() || stated.is_some_and(|stated| stated != gpus.len() as f64) {
        return Err(format!(
            "it tells of {} GPUs and counts {}",
            gpus.len(),
            stated.unwrap_or(0.0)
        ));
    }
    reading.count("gpu.count", gpus.len());
    if let Some(driver) = driver.filter(|driver| driver.starts_with(|c: char| c.is_ascii_digit())) {
        reading.version("driver", &driver);
        reading.add_word("gpu.driver", "", &driver);
    }
    Ok(reading)
}

/// Parses `memory.total [MiB]`: a name, and the unit for values without a unit.
fn columns(header: &str) -> Result<Vec<(&str, Option<&str>)>, String> {
    let columns: Vec<(&str, Option<&str>)> = header
        .split(',')
        .map(|column| match column.trim().split_once(" [") {
            Some((name, unit)) => (name, unit.strip_suffix(']')),
            None => (column.trim(), None),
        })
        .collect();
    let plain = |name: &str| {
        name.chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_'))
    };
    if let Some((odd, _)) = columns.iter().find(|(name, _)| !plain(name)) {
        return Err(format!("{:?} is no column", scan::word(odd)));
    }
    let addressed = columns
        .iter()
        .filter(|(name, _)| *name == "pci.bus_id")
        .count();
    match addressed {
        1 if columns.len() <= COLUMNS_MAX => Ok(columns),
        _ => Err(
            "it has no header with a column pci.bus_id: ask for that column, and not for noheader"
                .into(),
        ),
    }
}

fn with_unit(value: &str, unit: Option<&str>) -> String {
    match unit {
        Some(unit) if scan::number(value).is_some() => format!("{value} {unit}"),
        _ => value.to_owned(),
    }
}
