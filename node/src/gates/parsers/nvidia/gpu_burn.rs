//! gpu-burn: repeated matrix multiplications, compared with the first result. The tool always exits
//! with 0, reports idle GPUs as `OK`,
//! and counts errors between summaries. The list, the counts and the progress must therefore all be
//! present. A GPU with a dead process may
//! also be reported as `OK`, and counts as faulty.

use std::time::Duration;

use muster_core::gates::Gate;
use muster_core::wire::node::Failure;

use crate::gates::argv::{collect_words, expand_argument};
use crate::gates::parsers::{Answer, Bench, Reading, scan};
use crate::gates::program::{Program, find_program};
use crate::tool::{self, Call, ToolError};

const GPUS_MAX: usize = 256;
/// Folder of NVIDIA's driver with a subfolder for each GPU.
const DRIVEN: &str = "/proc/driver/nvidia/gpus";
/// Longest list of the GPUs by gpu-burn.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Written at the start of a burn.
const BURNS: &str = "Burning for ";

/// A progress line: `100.0%  proc'd: 405 (26255 Gflop/s) - 405 (26545 Gflop/s)   errors: 0 - 0
/// temps: 87 C - 74 C`
struct Progress {
    percent: f64,
    /// Absent for a GPU with a dead process.
    processed: Vec<Option<f64>>,
    speeds: Vec<f64>,
    errors: Vec<f64>,
    temperatures: Vec<Option<f64>>,
}

/// Returns the reason against a start of gpu-burn: the driver lists no GPU, or CUDA does not reach
/// the GPUs. Without a GPU the tool reads a number that was never set, and starts that many
/// processes.
pub(in crate::gates::parsers) fn absent(gate: &Gate, bench: &Bench<'_>) -> Option<String> {
    let mut gpus = std::fs::read_dir(bench.machine.path(DRIVEN))
        .into_iter()
        .flatten()
        .flatten();
    if gpus.next().is_none() {
        return Some("NVIDIA's driver lists no GPU".to_owned());
    }
    let program = gate.argv.first()?;
    match expand_argument(program, &collect_words(bench.plan, None, None)) {
        // The start of the tool reports a program that is missing or refused.
        Ok(name) => {
            let program = find_program(&name, gate, bench.plan, &bench.machine).ok()?;
            unlisted(&program, gate, bench)
        }
        Err(why) => Some(why),
    }
}

/// Returns the failure of `gpu_burn -l`. The option lists CUDA's GPUs, and starts no process. A
/// version without the option starts a burn.
fn unlisted(program: &Program, gate: &Gate, bench: &Bench<'_>) -> Option<String> {
    let env = gate.env.iter();
    let env: Vec<(&str, &str)> = env.map(|(name, value)| (&**name, &**value)).collect();
    let call = Call {
        argv: &[program.file.as_str(), "-l"],
        env: &env,
        path: program.path.as_deref(),
        timeout: Some(LIST_TIMEOUT),
        kills_leftovers: true,
        guard: bench.guard,
        sandbox: program.sandbox.filter(|_| bench.guard.is_some()),
        ..Call::default()
    };
    let done = match tool::run(bench.cx, &call) {
        Ok(done) => done,
        // The start of the tool reports both.
        Err(ToolError::Cancelled(_) | ToolError::Missing(_)) => return None,
        Err(error) => {
            return Some(format!(
                "gpu_burn -l failed: {}",
                Failure::from(error).message
            ));
        }
    };
    let text = String::from_utf8_lossy(&done.stdout);
    if text.contains(BURNS) {
        return Some("gpu_burn -l failed: this version does not know the option".to_owned());
    }
    let messages = String::from_utf8_lossy(&done.stderr);
    let answer = Answer {
        exit: done.status.code().unwrap_or(-1),
        text: &text,
        messages: &messages,
        serial: None,
    };
    (!done.status.success())
        .then(|| format!("gpu_burn -l failed: {}: {}", done.status, answer.reason()))
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return read_failed(answer);
    }
    scan::whole(answer.text)?;
    let verdicts = verdicts(answer.text)?;
    let (last, errors, history) = progress(answer.text, verdicts.len())?;
    let died = |gpu: &usize| last.processed[*gpu].is_none();
    if last.percent < 100.0 {
        return Err(format!("it ended at {} %", last.percent));
    }
    if let Some(idle) = last
        .processed
        .iter()
        .position(|processed| *processed == Some(0.0))
    {
        return Err(format!("GPU {idle} computed nothing"));
    }
    let mut reading = Reading::default();
    reading.count("burn.gpus", verdicts.len());
    let (dead, living): (Vec<_>, Vec<_>) = (0..verdicts.len()).partition(died);
    reading.notes.extend(
        dead.iter()
            .map(|gpu| format!("the process on GPU {gpu} died")),
    );
    let stuck = stuck(&history, &living);
    reading.notes.extend(
        stuck
            .iter()
            .map(|gpu| format!("GPU {gpu} stood still over the end of the run")),
    );
    let bad = |gpu: &usize| verdicts[*gpu] || stuck.contains(gpu) || died(gpu);
    reading.count("burn.faulty", (0..verdicts.len()).filter(bad).count());
    let fastest = last.speeds.iter().copied().fold(0.0, f64::max);
    let slowest = last.speeds.iter().copied().fold(f64::MAX, f64::min);
    reading.add(
        "burn.spread",
        if fastest > 0.0 {
            (fastest - slowest) / fastest * 100.0
        } else {
            100.0
        },
    );
    for gpu in 0..verdicts.len() {
        let entity = format!("GPU {gpu}");
        // Printed lines contain only a part of the error counts; the tool's verdict covers all
        // errors except errors before a death.
        if verdicts[gpu] != (errors[gpu] > 0.0) && !died(&gpu) {
            reading.notes.push(format!(
                "{entity} is called {} with {} errors",
                called(verdicts[gpu]),
                errors[gpu]
            ));
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

/// The reading of a run with a failure status: the faulty GPUs of the final list, or no answer.
fn read_failed(answer: &Answer<'_>) -> Result<Reading, String> {
    let verdicts = verdicts(answer.text).unwrap_or_default();
    let faulty = verdicts.iter().enumerate().filter(|(_, faulty)| **faulty);
    let faults: Vec<String> = faulty
        .map(|(gpu, _)| format!("GPU {gpu} is called FAULTY"))
        .collect();
    match faults.is_empty() {
        true => Err(format!("gpu_burn failed: {}", answer.reason())),
        false => Ok(Reading::of_faults(faults)),
    }
}

/// Returns whether a progress line adds no information to the line written over it. Errors are
/// counted until a summary, which ends a line
/// for good. The last line of each percent shows an idle GPU as well as all lines together.
pub(in crate::gates::parsers) fn is_superseded(former: &[u8], latest: &[u8]) -> bool {
    let percent = whole_percent(former);
    percent.is_some() && percent == whole_percent(latest) && !former.contains(&b'\n')
}

fn whole_percent(piece: &[u8]) -> Option<&str> {
    let (percent, _) = std::str::from_utf8(piece)
        .ok()?
        .trim_start()
        .split_once("%  proc'd:")?;
    percent.split('.').next()
}

fn called(faulty: bool) -> &'static str {
    if faulty { "FAULTY" } else { "OK" }
}

/// The list at the end: the verdict of each GPU.
fn verdicts(text: &str) -> Result<Vec<bool>, String> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("Tested "));
    let count = lines
        .next()
        .and_then(|line| scan::between(line, "Tested ", " GPUs:"));
    let count = count
        .and_then(scan::count)
        .ok_or("it does not list the GPUs that it tested")? as usize;
    if count == 0 || count > GPUS_MAX {
        return Err(format!("it tested {count} GPUs"));
    }
    let mut verdicts = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let unknown = || format!("{:?} is not understood", scan::word(line));
        let (index, verdict) = line
            .trim()
            .strip_prefix("GPU ")
            .and_then(|rest| rest.split_once(": "))
            .ok_or_else(unknown)?;
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
        false => Err(format!(
            "it tested {count} GPUs and lists {}",
            verdicts.len()
        )),
    }
}

/// The progress of the run in percent, and the work of each GPU.
type Done = (f64, Vec<Option<f64>>);

/// Returns GPUs without work in the last quarter of the run, while another GPU worked, or after
/// earlier work. The tool reports such GPUs as `OK`, with the
/// last speed.
fn stuck(history: &[Done], gpus: &[usize]) -> Vec<usize> {
    const LATE: f64 = 75.0;
    /// Minimum number of steps in a quarter, so chance does not cause a finding.
    const STEPS: usize = 3;
    let late = history
        .iter()
        .position(|(percent, _)| *percent > LATE)
        .unwrap_or(history.len())
        .saturating_sub(1);
    let (before, after) = (&history[..history.len().min(late + 1)], &history[late..]);
    let steps = |of: &[Done], gpu: usize| {
        of.windows(2)
            .filter(|pair| pair[1].1[gpu] > pair[0].1[gpu])
            .count()
    };
    let most = gpus.iter().map(|gpu| steps(after, *gpu)).max().unwrap_or(0);
    let stands =
        |gpu: &usize| steps(after, *gpu) == 0 && most.max(steps(before, *gpu) / 3) >= STEPS;
    gpus.iter().copied().filter(stands).collect()
}

/// The last progress line, the total errors of each GPU, and the work of each GPU at every line.
fn progress(text: &str, gpus: usize) -> Result<(Progress, Vec<f64>, Vec<Done>), String> {
    let (mut total, mut last, mut history) = (vec![0.0; gpus], None::<Progress>, Vec::new());
    for piece in text.split(['\r', '\n']) {
        if piece.contains("proc'd:") {
            let mut progress =
                read(piece).ok_or_else(|| format!("{:?} is not understood", scan::word(piece)))?;
            let counts = [
                progress.processed.len(),
                progress.speeds.len(),
                progress.errors.len(),
                progress.temperatures.len(),
            ];
            if counts != [gpus; 4] {
                return Err(format!("it tested {gpus} GPUs and tells of {counts:?}"));
            }
            // A dying process adds a marker, not a count, to its errors; earlier counts are kept.
            for gpu in (0..gpus).filter(|gpu| progress.processed[*gpu].is_none()) {
                progress.errors[gpu] = last.as_ref().map_or(0.0, |last| last.errors[gpu]);
            }
            history.push((progress.percent, progress.processed.clone()));
            last = Some(progress);
        } else if piece.trim_start().starts_with("Summary at:") {
            settle(&mut total, last.as_mut());
        }
    }
    settle(&mut total, last.as_mut());
    last.map(|last| (last, total, history))
        .ok_or_else(|| "it tells of no progress".into())
}

/// Adds the count up to a summary. The next count starts at 0.
fn settle(total: &mut [f64], last: Option<&mut Progress>) {
    for (total, errors) in total
        .iter_mut()
        .zip(last.into_iter().flat_map(|last| last.errors.iter_mut()))
    {
        *total += *errors;
        *errors = 0.0;
    }
}

fn read(line: &str) -> Option<Progress> {
    let (percent, rest) = line.trim().split_once('%')?;
    let (processed, rest) = rest.split_once("proc'd:")?.1.split_once("errors:")?;
    let (errors, rest) = rest.split_once("temps:")?;
    // Newer versions also print the power.
    let temperatures = rest
        .split_once("power:")
        .map_or(rest, |(temperatures, _)| temperatures);
    let (mut done, mut speeds) = (Vec::new(), Vec::new());
    for gpu in processed.split(" - ") {
        let (count, speed) = gpu.trim().split_once(" (")?;
        done.push(if count == "-1" {
            None
        } else {
            Some(scan::count(count)?)
        });
        speeds.push(scan::quantity(speed.strip_suffix(')')?, "Gflop/s")?);
    }
    let words = |text: &'_ str| -> Vec<String> {
        text.split_whitespace()
            .map(|word| word.trim_end_matches('-').to_owned())
            .collect()
    };
    let mut counts = Vec::new();
    for word in words(errors).iter().filter(|word| !word.is_empty()) {
        match word.as_str() {
            // After a nonzero count, and after the count of a dead process; printed before the dash
            // of the next GPU.
            "(WARNING!)" | "(DIED!)" => {}
            _ => {
                // The tool counts with signed 32-bit numbers.
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
    Some(Progress {
        percent: scan::number(percent)?,
        processed: done,
        speeds,
        errors: counts,
        temperatures: degrees,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of two GPUs in the format of gpu-burn's documentation, with a line per progress.
    fn run(done: &[(u32, u32, u32)]) -> Reading {
        let line = |(percent, first, second): &(u32, u32, u32)| {
            format!(
                "{percent}.0%  proc'd: {first} (52045 Gflop/s) - {second} (51946 Gflop/s)   errors: 0 - 0   temps: 69 C - 67 C \n"
            )
        };
        let lines: String = done.iter().map(line).collect();
        let text = format!(
            "{lines}Killing processes with SIGTERM (soft kill)\ndone\n\nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n"
        );
        parse(&Answer {
            exit: 0,
            text: &text,
            messages: "",
            serial: None,
        })
        .unwrap_or_else(|why| panic!("{why}"))
    }

    /// An hour: a line for each nvidia-smi call, and a summary for every tenth of the run.
    #[test]
    fn overwritten_progress_lines_are_dropped_without_loss() {
        let mut text = String::from("Burning for 3600 seconds.\n");
        let (mut errors, mut next_summary) = ([0; 2], 0.0);
        for line in 0..28_000_u32 {
            let percent = f64::from(line + 1) / 280.0;
            errors[0] += u32::from(line % 500 == 0);
            text.push_str(&format!(
                "\r{percent:.1}%  proc'd: {line} (52045 Gflop/s) - {} (51946 Gflop/s)   errors: {}  (WARNING!)- 0   temps: 69 C - 67 C ",
                line.min(19_000), errors[0]
            ));
            if next_summary < percent {
                next_summary = percent + 10.0;
                text.push_str("\n\tSummary at:   Mon Jan 15 07:36:03 AM CET 2024\n\n");
                errors = [0; 2];
            }
        }
        text.push_str(
            "\nKilling processes with SIGTERM (soft kill)\ndone\n\nTested 2 GPUs:\n\tGPU 0: FAULTY\n\tGPU 1: OK\n",
        );
        let mut output = crate::tool::Output::new(1 << 20, Some(is_superseded));
        // For any split into reads.
        text.as_bytes()
            .chunks(997)
            .for_each(|chunk| output.push(chunk));
        let (kept, truncated) = output.take();
        let kept = String::from_utf8(kept).unwrap();
        assert!(
            !truncated && kept.len() < 32 << 10 && text.len() > 2 << 20,
            "{} of {}",
            kept.len(),
            text.len()
        );
        let read = |text: &str| {
            parse(&Answer {
                exit: 0,
                text,
                messages: "",
                serial: None,
            })
            .unwrap()
        };
        let reading = read(&kept);
        assert_eq!(reading, read(&text));
        assert_eq!(
            (
                reading.number("burn.errors", "GPU 0"),
                reading.number("burn.faulty", "")
            ),
            (Some(56.0), Some(2.0))
        );
        assert_eq!(reading.notes, ["GPU 1 stood still over the end of the run"]);
    }

    /// From gpu-burn's source (gpu_burn-drv.cpp, startBurn and listenClients): a dying process
    /// writes -1 twice, and the second value is added to
    /// the errors.
    #[test]
    fn a_gpu_whose_process_died_is_faulty_whatever_it_is_called() {
        let died = |errors: &str, after: &str, called: &str| {
            let text = format!(
                "\r40.0%  proc'd: 200 (52502 Gflop/s) - 190 (51733 Gflop/s)   errors: 0 - {errors} temps: 50 C - 45 C \
                 \r60.0%  proc'd: 300 (52502 Gflop/s) - -1 (0 Gflop/s)   errors: 0 - {after}  (DIED!)  temps: 50 C - 45 C \n\
                 \tSummary at:   Mon Jan 15 07:36:03 AM CET 2024\n\n\
                 \r100.0%  proc'd: 405 (52045 Gflop/s) - -1 (0 Gflop/s)   errors: 0 - 0  (DIED!)  temps: 69 C - -- \n\
                 Killing processes with SIGTERM (soft kill)\ndone\n\nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: {called}\n"
            );
            parse(&Answer {
                exit: 0,
                text: &text,
                messages: "",
                serial: None,
            })
            .unwrap_or_else(|why| panic!("{why}"))
        };
        for (errors, after, called, kept) in [
            ("0", "0", "OK", 0.0),
            ("0", "-1", "FAULTY", 0.0),
            ("1  (WARNING!)", "0", "OK", 1.0),
            ("7  (WARNING!)", "6", "FAULTY", 7.0),
        ] {
            let reading = died(errors, after, called);
            let of = |metric, gpu| reading.number(metric, gpu);
            assert_eq!(
                (of("burn.faulty", ""), of("burn.errors", "GPU 1")),
                (Some(1.0), Some(kept)),
                "{errors} {after}"
            );
            assert_eq!(
                (of("burn.errors", "GPU 0"), of("burn.gpus", "")),
                (Some(0.0), Some(2.0))
            );
            assert_eq!(reading.notes, ["the process on GPU 1 died"]);
        }
    }

    #[test]
    fn a_gpu_that_stands_still_at_the_end_is_faulty() {
        let going = |percent: u32| (percent, percent * 10, percent * 9);
        let good: Vec<_> = (1..=20).map(|step| going(step * 5)).collect();
        assert_eq!(run(&good).number("burn.faulty", ""), Some(0.0));
        let mut hung = good.clone();
        hung[13..].iter_mut().for_each(|done| done.2 = 585);
        let reading = run(&hung);
        assert_eq!(reading.number("burn.faulty", ""), Some(1.0));
        assert_eq!(reading.notes, ["GPU 1 stood still over the end of the run"]);
        // All GPUs stopped after earlier work.
        hung[13..].iter_mut().for_each(|done| done.1 = 650);
        assert_eq!(run(&hung).number("burn.faulty", ""), Some(2.0));
        // Too few lines for a finding.
        assert_eq!(
            run(&[going(50), (100, 900, 450)]).number("burn.faulty", ""),
            Some(0.0)
        );
    }
}
