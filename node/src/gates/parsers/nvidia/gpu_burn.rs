//! gpu-burn: matrices multiplied over and over, compared with the first result. It ends with 0 whatever it found, calls a GPU on which nothing was
//! computed `OK`, and counts errors from one summary to the next; so its list, its counts and its progress must all be there.

use crate::gates::parsers::{Answer, Reading, scan};

const GPUS_MAX: usize = 256;

/// One line of progress: `100.0%  proc'd: 405 (26255 Gflop/s) - 405 (26545 Gflop/s)   errors: 0 - 0   temps: 87 C - 74 C`
struct Progress {
    percent: f64,
    processed: Vec<f64>,
    speeds: Vec<f64>,
    errors: Vec<f64>,
    temperatures: Vec<Option<f64>>,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("gpu_burn failed: {}", scan::word(answer.messages)));
    }
    scan::whole(answer.text)?;
    let verdicts = verdicts(answer.text)?;
    let (last, errors) = progress(answer.text, verdicts.len())?;
    if last.percent < 100.0 {
        return Err(format!("it ended at {} %", last.percent));
    }
    if let Some(idle) = last.processed.iter().position(|processed| *processed == 0.0) {
        return Err(format!("GPU {idle} computed nothing"));
    }
    let mut reading = Reading::default();
    reading.count("burn.gpus", verdicts.len());
    reading.count("burn.faulty", verdicts.iter().filter(|faulty| **faulty).count());
    let fastest = last.speeds.iter().copied().fold(0.0, f64::max);
    let slowest = last.speeds.iter().copied().fold(f64::MAX, f64::min);
    reading.add("burn.spread", if fastest > 0.0 { (fastest - slowest) / fastest * 100.0 } else { 100.0 });
    for gpu in 0..verdicts.len() {
        let entity = format!("GPU {gpu}");
        // Counts of errors show on the lines that came to be printed; its own verdict knows of all.
        if verdicts[gpu] != (errors[gpu] > 0.0) {
            reading.notes.push(format!("{entity} is called {} with {} errors", called(verdicts[gpu]), errors[gpu]));
            if errors[gpu] > 0.0 {
                return Err(format!("{entity} is called OK with {} errors", errors[gpu]));
            }
        }
        reading.add_of("burn.errors", &entity, errors[gpu]);
        reading.add_of("burn.speed", &entity, last.speeds[gpu]);
        if let Some(degrees) = last.temperatures[gpu] {
            reading.add_of("burn.temperature", &entity, degrees);
        }
    }
    Ok(reading)
}

fn called(faulty: bool) -> &'static str {
    if faulty { "FAULTY" } else { "OK" }
}

/// The list at the end: whether each GPU is faulty.
fn verdicts(text: &str) -> Result<Vec<bool>, String> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("Tested "));
    let count = lines.next().and_then(|line| scan::between(line, "Tested ", " GPUs:"));
    let count = count.and_then(scan::count).ok_or("it does not list the GPUs that it tested")? as usize;
    if count == 0 || count > GPUS_MAX {
        return Err(format!("it tested {count} GPUs"));
    }
    let mut verdicts = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let unknown = || format!("{:?} is not understood", scan::word(line));
        let (index, verdict) =
            line.trim().strip_prefix("GPU ").and_then(|rest| rest.split_once(": ")).ok_or_else(unknown)?;
        if index.parse() != Ok(verdicts.len()) {
            return Err(unknown());
        }
        verdicts.push(match verdict {
            "OK" => false,
            "FAULTY" => true,
            _ => return Err(unknown()),
        });
    }
    match verdicts.len() == count {
        true => Ok(verdicts),
        false => Err(format!("it tested {count} GPUs and lists {}", verdicts.len())),
    }
}

/// The last line of progress, and each GPU's errors over all of them.
fn progress(text: &str, gpus: usize) -> Result<(Progress, Vec<f64>), String> {
    let (mut total, mut last) = (vec![0.0; gpus], None::<Progress>);
    for piece in text.split(['\r', '\n']) {
        if piece.contains("proc'd:") {
            let progress = read(piece).ok_or_else(|| format!("{:?} is not understood", scan::word(piece)))?;
            let counts =
                [progress.processed.len(), progress.speeds.len(), progress.errors.len(), progress.temperatures.len()];
            if counts != [gpus; 4] {
                return Err(format!("it tested {gpus} GPUs and tells of {counts:?}"));
            }
            last = Some(progress);
        } else if piece.trim_start().starts_with("Summary at:") {
            settle(&mut total, last.as_mut());
        }
    }
    settle(&mut total, last.as_mut());
    last.map(|last| (last, total)).ok_or_else(|| "it tells of no progress".into())
}

/// Adds what was counted up to a summary, from which it counts anew.
fn settle(total: &mut [f64], last: Option<&mut Progress>) {
    for (total, errors) in total.iter_mut().zip(last.into_iter().flat_map(|last| last.errors.iter_mut())) {
        *total += *errors;
        *errors = 0.0;
    }
}

fn read(line: &str) -> Option<Progress> {
    let (percent, rest) = line.trim().split_once('%')?;
    let (processed, rest) = rest.split_once("proc'd:")?.1.split_once("errors:")?;
    let (errors, rest) = rest.split_once("temps:")?;
    // Newer ones tell the power too.
    let temperatures = rest.split_once("power:").map_or(rest, |(temperatures, _)| temperatures);
    let (mut done, mut speeds) = (Vec::new(), Vec::new());
    for gpu in processed.split(" - ") {
        let (count, speed) = gpu.trim().split_once(" (")?;
        // -1 for a GPU whose process died is no count.
        done.push(scan::count(count)?);
        speeds.push(scan::quantity(speed.strip_suffix(')')?, "Gflop/s")?);
    }
    let words = |text: &'_ str| -> Vec<String> {
        text.split_whitespace().map(|word| word.trim_end_matches('-').to_owned()).collect()
    };
    let mut counts = Vec::new();
    for word in words(errors).iter().filter(|word| !word.is_empty()) {
        match word.as_str() {
            // After a count that is not 0; it stands against the dash before the next one.
            "(WARNING!)" => {}
            _ => {
                // It counts in 32 bits with a sign.
                let count: i32 = word.parse().ok()?;
                counts.push(f64::from(count.cast_unsigned()));
            }
        }
    }
    let mut degrees = Vec::new();
    for gpu in temperatures.split(" - ") {
        match gpu.trim() {
            "--" => degrees.push(None),
            text => degrees.push(Some(scan::quantity(text, "C")?)),
        }
    }
    Some(Progress { percent: scan::number(percent)?, processed: done, speeds, errors: counts, temperatures: degrees })
}
