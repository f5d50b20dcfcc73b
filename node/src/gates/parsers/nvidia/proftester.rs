//! Parser for dcgmproftester with `--no-dcgm-validation`, DCGM 3 and 4. Each worker prints the
//! speed of its GPU every second. Field 1004 (tensor cores) has a speed. Some other fields no
//! longer print a speed (DCGM issue 239), and a line without a speed is an error.

use std::collections::BTreeMap;

use crate::gates::parsers::{Answer, Reading, scan};

const GPUS_MAX: usize = 256;
/// An hour of lines for a GPU.
const LINES_MAX: usize = 3600;

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("dcgmproftester failed: {}", answer.reason()));
    }
    scan::whole(answer.text)?;
    let mut gpus: BTreeMap<u32, (Vec<f64>, bool)> = BTreeMap::new();
    let mut ended = 0;
    for line in answer.text.lines().map(str::trim) {
        ended += usize::from(line == "Skipping UnwatchFields() since DCGM validation is disabled");
        let Some(rest) = line.strip_prefix("Worker ") else {
            continue;
        };
        let unknown = || format!("{:?} is not understood", scan::word(line));
        let (gpu, said) = worker(rest).ok_or_else(unknown)?;
        let (speeds, initialised) = gpus.entry(gpu).or_default();
        if said.starts_with("Message: ") {
            // Printed when the CUDA context exists, with the PCI address of the card.
            if !said.starts_with("Message: Bus ID ") || std::mem::replace(initialised, true) {
                return Err(unknown());
            }
        } else {
            let speed = said
                .rsplit_once(" gflops)")
                .and_then(|(before, _)| before.rsplit_once('('));
            let speed = speed
                .and_then(|(_, number)| scan::number(number))
                .ok_or_else(unknown)?;
            if speeds.len() >= LINES_MAX {
                return Err("it says more than an hour of it".into());
            }
            speeds.push(speed);
        }
    }
    if ended != 1 {
        return Err("it does not come to its end".into());
    }
    if gpus.is_empty() || gpus.len() > GPUS_MAX {
        return Err(format!("it tells of {} GPUs", gpus.len()));
    }
    let mut reading = Reading::default();
    reading.count("proftester.gpus", gpus.len());
    for (gpu, (mut speeds, initialised)) in gpus {
        speeds.sort_by(f64::total_cmp);
        let middle = speeds
            .get(speeds.len() / 2)
            .copied()
            .filter(|speed| *speed > 0.0);
        let middle = middle
            .filter(|_| initialised)
            .ok_or_else(|| format!("GPU {gpu} computed nothing"))?;
        let entity = format!("GPU {gpu}");
        reading.count_of("proftester.reports", &entity, speeds.len());
        reading.add_of("proftester.speed", &entity, middle);
    }
    Ok(reading)
}

/// Parses `0:0[1004]: TensorEngineActive: …` or `0:0 [1004]: …` into the GPU and the message.
/// Several workers on a GPU are MIG instances, which gates do not support.
fn worker(rest: &str) -> Option<(u32, &str)> {
    let (who, said) = rest.split_once("]: ")?;
    let (who, field) = who.split_once('[')?;
    let (gpu, worker) = who.trim_end().split_once(':')?;
    let known = worker == "0" && scan::index(field).is_some();
    known
        .then(|| gpu.parse().ok())
        .flatten()
        .map(|gpu| (gpu, said))
}
