//! Parser for `nvidia-smi -q`: `Key : Value` lines, nested by an indentation of four spaces. A key
//! may have both a value and nested lines.

use super::leaf::{self, Leaves, keep};
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
    if answer.exit != 0 {
        return Err(format!("nvidia-smi failed: {}", answer.reason()));
    }
    scan::whole(answer.text)?;
    let mut lines = answer.text.lines().filter(|line| !line.trim().is_empty());
    if lines.next() != Some(BANNER) {
        return Err("it does not begin as `nvidia-smi -q` does".into());
    }
    let (head, gpus) = read(lines)?;
    let stated = |key: &str| {
        head.get(key)
            .map(String::as_str)
            .ok_or_else(|| format!("there is no {key:?}"))
    };
    let driver = scan::word(stated("Driver Version")?);
    if !driver.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("{driver:?} is no driver version"));
    }
    let attached = scan::count(stated("Attached GPUs")?).ok_or("Attached GPUs is no count")?;
    if attached != gpus.len() as f64 || gpus.is_empty() {
        return Err(format!(
            "{attached} GPUs are attached, it tells of {}",
            gpus.len()
        ));
    }
    let mut reading = Reading::default();
    reading.version("driver", &driver);
    reading.add("gpu.count", attached);
    reading.add_word("gpu.driver", "", &driver);
    if let Some(cuda) = head
        .get("CUDA Version")
        .filter(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    {
        reading.add_word("gpu.cuda", "", cuda);
    }
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
