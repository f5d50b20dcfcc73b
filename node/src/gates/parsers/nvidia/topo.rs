//! Parser for `nvidia-smi topo -m`: the path from each GPU to every other GPU and every NIC. The
//! matrix must be complete: a row for every column, the same path from both ends, known columns
//! after the matrix, and the legend.

use super::smi_status;
use crate::gates::parsers::{Answer, Reading, scan};

/// Several times the GPUs and NICs of the largest boards.
const DEVICES_MAX: usize = 256;
/// Columns after the matrix, in older and newer versions.
const TAILS: [&[&str]; 3] = [
    &["CPU Affinity"],
    &["CPU Affinity", "NUMA Affinity"],
    &["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"],
];

/// Path between two devices.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Path {
    Itself,
    /// Over the given number of NVLinks.
    NvLink(f64),
    /// Behind the same PCIe switches: `PIX`, `PXB`.
    Switch,
    /// Through the host: `PHB`, `NODE`, `SYS`.
    Host,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if let Some(ended) = smi_status::read_end(answer) {
        return ended;
    }
    scan::whole(answer.text)?;
    let text = plain(answer.text);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let names = heads(lines.next().unwrap_or_default())?;
    let mut rows = Vec::with_capacity(names.len());
    for name in &names {
        rows.push(row(lines.next().unwrap_or_default(), name, names.len())?);
    }
    let rest: Vec<&str> = lines.collect();
    legend(&rest, &names)?;
    for (at, row) in rows.iter().enumerate() {
        let odd = |to: usize| row[to] != rows[to][at] || (row[to] == Path::Itself) != (to == at);
        if let Some(to) = (0..names.len()).find(|to| odd(*to)) {
            return Err(format!(
                "{} and {} reach each other differently",
                names[at], names[to]
            ));
        }
    }
    read(&names, &rows)
}

fn read(names: &[String], rows: &[Vec<Path>]) -> Result<Reading, String> {
    let is_gpu = |at: &usize| names[*at].starts_with("GPU");
    let gpus: Vec<usize> = (0..names.len()).filter(is_gpu).collect();
    let nics: Vec<usize> = (0..names.len()).filter(|at| !is_gpu(at)).collect();
    if gpus.is_empty() {
        return Err("it tells of no GPU".into());
    }
    let mut reading = Reading::default();
    reading.count("topo.gpus", gpus.len());
    reading.count("topo.nics", nics.len());
    for &gpu in &gpus {
        let entity = format!("GPU {}", names[gpu].trim_start_matches("GPU"));
        let links = |to: usize| {
            if let Path::NvLink(links) = rows[gpu][to] {
                links
            } else {
                0.0
            }
        };
        let others: Vec<f64> = gpus
            .iter()
            .filter(|to| **to != gpu)
            .map(|to| links(*to))
            .collect();
        reading.count_of(
            "topo.gpus_by_nvlink",
            &entity,
            others.iter().filter(|links| **links > 0.0).count(),
        );
        if let Some(fewest) = others.iter().copied().reduce(f64::min) {
            reading.add_of("topo.nvlinks", &entity, fewest);
        }
        let near = nics
            .iter()
            .filter(|nic| rows[gpu][**nic] == Path::Switch)
            .count();
        reading.count_of("topo.nics_near", &entity, near);
    }
    Ok(reading)
}

/// Removes the underlining of the first line. nvidia-smi writes the escape codes into files, too.
fn plain(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let style = piece.len()
            - piece
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
                .len();
        plain.push_str(piece[style..].strip_prefix('m').unwrap_or(piece));
    }
    plain
}

/// Parses `\tGPU0\tGPU1\tNIC0\tCPU Affinity\t…`: the devices, GPUs first, each numbered from 0.
fn heads(line: &str) -> Result<Vec<String>, String> {
    let unknown = || format!("{:?} are not the columns of a topology", scan::word(line));
    let cells: Vec<&str> = line.split('\t').map(str::trim).collect();
    let [first, cells @ ..] = cells.as_slice() else {
        return Err(unknown());
    };
    let cells: Vec<&str> = cells
        .iter()
        .copied()
        .filter(|cell| !cell.is_empty())
        .collect();
    let devices = cells
        .iter()
        .position(|cell| *cell == "CPU Affinity")
        .ok_or_else(unknown)?;
    let (devices, tail) = cells.split_at(devices);
    let gpus = devices
        .iter()
        .take_while(|name| name.starts_with("GPU"))
        .count();
    let numbered = |prefix: &str, from: &[&str]| {
        from.iter().enumerate().all(|(at, name)| {
            name.strip_prefix(prefix).and_then(|rest| rest.parse().ok()) == Some(at)
        })
    };
    let known = first.is_empty() && TAILS.contains(&tail) && devices.len() <= DEVICES_MAX;
    // NICs have numbers, or device names in older versions.
    let nics = &devices[gpus..];
    if !known
        || !numbered("GPU", &devices[..gpus])
        || !(numbered("NIC", nics) || numbered("mlx5_", nics))
    {
        return Err(unknown());
    }
    Ok(devices.iter().map(|name| (*name).to_owned()).collect())
}

fn row(line: &str, name: &str, devices: usize) -> Result<Vec<Path>, String> {
    let unknown = || format!("{:?} is not the row of {name}", scan::word(line));
    let cells: Vec<&str> = line.split('\t').map(str::trim).collect();
    if cells.first() != Some(&name) || cells.len() <= devices {
        return Err(unknown());
    }
    cells[1..=devices]
        .iter()
        .map(|cell| path(cell).ok_or_else(unknown))
        .collect()
}

fn path(cell: &str) -> Option<Path> {
    match cell {
        "X" => Some(Path::Itself),
        "PIX" | "PXB" => Some(Path::Switch),
        "PHB" | "NODE" | "SYS" => Some(Path::Host),
        other => other
            .strip_prefix("NV")
            .and_then(scan::index)
            .filter(|links| *links > 0.0)
            .map(Path::NvLink),
    }
}

/// Checks the legend below the matrix. An output without the legend was truncated. The legend names
/// each numbered NIC.
fn legend(rest: &[&str], names: &[String]) -> Result<(), String> {
    if rest.first().map(|line| line.trim()) != Some("Legend:") {
        return Err("there is no legend below its rows".into());
    }
    if let Some(word) = rest.iter().find(|line| line.contains('\t')) {
        return Err(format!("{:?} is a row too many", scan::word(word)));
    }
    for nic in names.iter().filter(|name| name.starts_with("NIC")) {
        let named = rest.iter().filter(|line| {
            line.trim()
                .strip_prefix(nic.as_str())
                .is_some_and(|rest| rest.starts_with(':'))
        });
        if named.count() != 1 {
            return Err(format!("its legend does not name {nic} once"));
        }
    }
    Ok(())
}
