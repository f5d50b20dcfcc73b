//! Parser for `nvidia-smi nvlink -s`. Without an active link, nvidia-smi prints only a short
//! message. The message is a fault: the links were asked, and none is active.

use super::smi_status;
use crate::gates::parsers::{Answer, Reading, scan};

const LINKS_MAX: usize = 64;
/// Printed in place of the links of a GPU without an active link, in capitals of any kind.
const ALL_INACTIVE: &str = "unable to retrieve nvlink information as all links are inactive";

#[derive(Default)]
struct Gpu {
    speeds: Vec<f64>,
    inactive: usize,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if let Some(ended) = smi_status::read_end(answer) {
        return ended;
    }
    scan::whole(answer.text)?;
    let inactive = without_links(answer.text);
    if !inactive.is_empty() {
        return Ok(Reading::of_faults(inactive));
    }
    let mut gpus: Vec<(String, Gpu)> = Vec::new();
    for line in answer.text.lines().filter(|line| !line.trim().is_empty()) {
        let unknown = || format!("{:?} is not understood", scan::word(line));
        if let Some(rest) = line.strip_prefix("GPU ") {
            let (index, name) = rest.split_once(": ").ok_or_else(unknown)?;
            scan::index(index).ok_or_else(unknown)?;
            let entity = format!("GPU {index}");
            if !name.contains("(UUID: GPU-") || gpus.iter().any(|(other, _)| *other == entity) {
                return Err(unknown());
            }
            gpus.push((entity, Gpu::default()));
            continue;
        }
        let (_, gpu) = gpus.last_mut().ok_or_else(unknown)?;
        let (index, state) = line
            .trim()
            .strip_prefix("Link ")
            .and_then(|rest| rest.split_once(": "))
            .ok_or_else(unknown)?;
        // Links are numbered from 0 without a gap.
        let known = gpu.speeds.len() + gpu.inactive;
        if index.parse() != Ok(known) || known >= LINKS_MAX {
            return Err(unknown());
        }
        match state {
            "<inactive>" => gpu.inactive += 1,
            speed => gpu
                .speeds
                .push(scan::quantity(speed, "GB/s").ok_or_else(unknown)?),
        }
    }
    if gpus.is_empty() {
        return Err("it tells of no GPU".into());
    }
    let mut reading = Reading::default();
    reading.count("nvlink.gpus", gpus.len());
    for (entity, gpu) in gpus {
        if gpu.speeds.len() + gpu.inactive == 0 {
            return Err(format!("it tells of no link of {entity}"));
        }
        reading.count_of("nvlink.links", &entity, gpu.speeds.len() + gpu.inactive);
        reading.count_of("nvlink.links_active", &entity, gpu.speeds.len());
        reading.count_of("nvlink.links_inactive", &entity, gpu.inactive);
        if let Some(slowest) = gpu.speeds.iter().copied().reduce(f64::min) {
            reading.add_of("nvlink.link_speed", &entity, slowest);
        }
    }
    Ok(reading)
}

/// The GPUs without an active link, with nvidia-smi's own message.
fn without_links(text: &str) -> Vec<String> {
    let (mut found, mut gpu) = (Vec::new(), "");
    for line in text.lines().map(str::trim) {
        if line.to_ascii_lowercase().contains(ALL_INACTIVE) && found.len() < LINKS_MAX {
            found.push(match gpu {
                "" => scan::word(line),
                gpu => format!("GPU {gpu}: {}", scan::word(line)),
            });
        } else if let Some((index, _)) = line
            .strip_prefix("GPU ")
            .and_then(|rest| rest.split_once(": "))
            .filter(|(index, _)| scan::index(index).is_some())
        {
            gpu = index;
        }
    }
    found
}
