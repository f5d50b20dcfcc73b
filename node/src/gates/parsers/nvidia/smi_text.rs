//! Parser for `nvidia-smi -q`: `Key : Value` lines, nested by an indentation of four spaces. A key
//! may have both a value and nested lines.

use super::fields::{TEXT_CUDA, TEXT_DRIVER};
use super::head;
use super::leaf::{self, Leaves, keep};
use super::smi_status;
use crate::gates::parsers::{Answer, Reading, scan};

const BANNER: &str = "==============NVSMI LOG==============";
const INDENT: usize = 4;
const DEPTH_MAX: usize = 8;
const GPUS_MAX: usize = 256;

struct Gpu {
    address: String,
    leaves: Leaves,
    processes: Option<u32>,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if let Some(ended) = smi_status::read_end(answer) {
        return ended;
    }
    scan::whole(answer.text)?;
    let mut lines = answer.text.lines().filter(|line| !line.trim().is_empty());
    if lines.next() != Some(BANNER) {
        return Err("it does not begin as `nvidia-smi -q` does".into());
    }
    let (beside, gpus) = read(lines)?;
    let attached = beside
        .get("Attached GPUs")
        .ok_or("there is no \"Attached GPUs\"")?;
    let attached = scan::count(attached).ok_or("Attached GPUs is no count")?;
    if attached != gpus.len() as f64 || gpus.is_empty() {
        return Err(format!(
            "{attached} GPUs are attached, it tells of {}",
            gpus.len()
        ));
    }
    let mut reading = Reading::default();
    reading.add("gpu.count", attached);
    head::add_versions(&mut reading, &beside, TEXT_DRIVER, TEXT_CUDA)?;
    for gpu in &gpus {
        leaf::add(&mut reading, &gpu.address, &gpu.leaves, |field| field.text)?;
        if let Some(processes) = gpu.processes {
            reading.add_of("gpu.processes", &gpu.address, processes);
        }
    }
    Ok(reading)
}

fn read<'a>(lines: impl Iterator<Item = &'a str>) -> Result<(Leaves, Vec<Gpu>), String> {
    let (mut head, mut gpus, mut path) = (Leaves::new(), Vec::<Gpu>::new(), Vec::<&str>::new());
    for line in lines {
        if let Some(id) = line.strip_prefix("GPU ") {
            let address = scan::pci_address(id.trim())
                .ok_or_else(|| format!("{:?} is no GPU", scan::word(id)))?;
            if gpus.len() >= GPUS_MAX || gpus.iter().any(|gpu| gpu.address == address) {
                return Err(format!("GPU {address} stands there twice"));
            }
            gpus.push(Gpu {
                address,
                leaves: Leaves::new(),
                processes: None,
            });
            path = vec!["GPU"];
            continue;
        }
        let depth = (line.len() - line.trim_start_matches(' ').len()) / INDENT;
        let (key, value) = match line.split_once(" : ") {
            Some((key, value)) => (key.trim(), Some(value)),
            None => (line.trim().trim_end_matches(" :").trim(), None),
        };
        if depth > path.len().min(DEPTH_MAX) {
            return Err(format!("{:?} belongs to nothing", scan::word(line)));
        }
        path.truncate(depth);
        path.push(key);
        let Some(gpu) = gpus.last_mut() else {
            if let (0, Some(value)) = (depth, value) {
                keep(&mut head, key.to_owned(), value);
            }
            continue;
        };
        // All lines of a GPU are indented at least once. A line at the GPU's own level belongs to
        // no GPU.
        let Some(below) = path.get(1..).filter(|below| !below.is_empty()) else {
            return Err(format!(
                "{:?} is neither a GPU nor of one",
                scan::word(line)
            ));
        };
        match below {
            ["Processes"] => gpu.processes = Some(0),
            ["Processes", .., "Process ID"] => gpu.processes = gpu.processes.map(|count| count + 1),
            ["Processes", ..] => {}
            _ => {
                if let Some(value) = value {
                    keep(&mut gpu.leaves, below.join("/"), value);
                }
            }
        }
    }
    Ok((head, gpus))
}
