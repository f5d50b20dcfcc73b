//! Execution of a gate: runs the tool or measures in this process, and compares the reading with the criteria.

use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use muster_core::gates::{
    Assessment, Evidence, Gate, GateResult, OnTimeout, Verdict, unmeasurable,
};
use muster_core::wire::node::{Failure, FailureCode};

use super::argv::collect_words;
use super::call::Target;
use super::call::{
    Place, Stop, ToolAnswer, check_exit, classify_error, expand_argv, parse_answer, run_tool,
};
use super::evidence::{keep_files, keep_output};
use super::parsers::{self, Reading};
use super::scratch::Scratch;
use super::targets::list_targets;
use super::verdict::{
    judge_absent, judge_no_gpu, judge_reading, judge_timeout, judge_unsettled, make_result,
    reference_of, settling_s, unmeasured,
};
use super::{Bench, during, gpu_nodes, kernel_log, needs, no_gpu, window};
use crate::failure::fatal;
use crate::files;
use crate::tool::{self, Finished, ToolError};

/// Time between two runs of a gate with values still settling after a boot.
const SETTLE_EVERY: Duration = Duration::from_secs(3);
/// Number of kept reasons of earlier runs.
const FORMER_MAX: usize = 10;

/// One run of a gate.
struct Attempt {
    assessment: Assessment,
    evidence: Evidence,
    /// Whether another run would give the same result.
    lasting: bool,
}

/// Runs a gate to its verdict, with the retries of the gate after errors.
///
/// # Errors
/// Only `cancelled`; every other end is a verdict.
pub(super) fn execute(gate: &Gate, bench: &Bench<'_>) -> Result<GateResult, Failure> {
    let (started_at, started) = (bench.cx.clock().now(), Instant::now());
    let from_us = kernel_log::now_us(&bench.machine);
    let (mut former, mut errors) = (Vec::new(), 0);
    let (assessment, mut evidence) = loop {
        let Attempt {
            assessment,
            evidence,
            lasting,
        } = attempt(gate, bench)?;
        if !gate.effects.is_empty() || assessment.verdict == Verdict::Error {
            bench.shared.forget();
        }
        let settles = !lasting && settling_s(gate, &assessment, &bench.machine).is_some();
        // The listener of a pair gate ends with the first run. The caller that started both ends runs both again.
        let retries = if gate.peer.is_some() { 0 } else { gate.retries };
        let errs = assessment.verdict == Verdict::Error && !lasting && errors < retries;
        if !(settles || errs) {
            break (assessment, evidence);
        }
        // A value settles for minutes, with the same reason every three seconds.
        if former.last() != Some(&assessment.reason) {
            bench.cx.log(&format!(
                "{}: run again after: {}",
                gate.id, assessment.reason
            ));
        }
        if settles {
            bench.shared.forget();
            match window::wait(bench.cx, SETTLE_EVERY) {
                Ok(()) => {}
                Err(window::Ended::Deadline) => {
                    let assessment = judge_unsettled(gate, assessment, &bench.machine);
                    break (assessment, evidence);
                }
                Err(window::Ended::Cancelled) => return Err(cancelled(gate, "settled")),
            }
        } else {
            errors += 1;
        }
        if former.last() != Some(&assessment.reason) && former.len() < FORMER_MAX {
            former.push(assessment.reason);
        }
    };
    let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    evidence.kernel_log = kernel_log::since(&bench.machine, from_us);
    let Assessment {
        verdict,
        reason,
        measured,
    } = assessment;
    Ok(GateResult {
        measured,
        started_at,
        duration_ms,
        former,
        evidence: evidence.sealed(),
        ..make_result(gate, bench, verdict, reason)
    })
}

fn cancelled(gate: &Gate, did: &str) -> Failure {
    fatal(
        FailureCode::Cancelled,
        format!("the job was cancelled while gate {} {did}", gate.id),
    )
}

/// Runs the gate once.
fn attempt(gate: &Gate, bench: &Bench<'_>) -> Result<Attempt, Failure> {
    let mut evidence = Evidence {
        argv: gate.argv.clone(),
        ..Evidence::default()
    };
    let refusal = no_gpu::refusal(gate, bench).or_else(|| needs::refusal(gate, bench));
    if let Some(reason) = refusal {
        return Ok(Attempt {
            assessment: unmeasured(Verdict::Skipped, reason),
            evidence,
            lasting: true,
        });
    }
    gpu_nodes::make_missing_nodes(gate, bench);
    let reference = reference_of(bench.plan, bench.facts);
    let profile = &bench.plan.profile;
    let unmeasurable = unmeasurable(gate, &reference).or_else(|| parsers::absent(gate, bench));
    if let (Some(during), None) = (&gate.during, &unmeasurable) {
        let (assessment, evidence) = match during::judge_looks(gate, during, bench) {
            Ok(judged) => judged,
            Err(why) => (judge_absent(gate, profile, why), evidence),
        };
        return Ok(Attempt {
            assessment,
            evidence,
            lasting: true,
        });
    }
    let read = match unmeasurable {
        Some(why) => Err(Stop::Absent(why)),
        None if gate.peer.is_some() && !bench.plan.variables.contains_key("pair_port") => Err(
            Stop::Absent("the gate measures two nodes: run muster-node pair".into()),
        ),
        None => measure(gate, bench, &mut evidence),
    };
    let without_gpu = no_gpu::concerns(gate, bench);
    let (assessment, lasting) = match read {
        // The reason of the tool stays in the evidence.
        Err(Stop::Unknown(_) | Stop::Absent(_)) if without_gpu => report_no_gpu(gate, bench),
        Ok(reading) if without_gpu && !reading.faults.is_empty() => report_no_gpu(gate, bench),
        Ok(reading) => (
            judge_reading(gate, &reference, reading, &mut evidence),
            false,
        ),
        Err(Stop::Unknown(why)) => (unmeasured(Verdict::Error, why), false),
        Err(Stop::Limited(why)) => (unmeasured(Verdict::Error, why), true),
        Err(Stop::Absent(why)) => (judge_absent(gate, profile, why), true),
        Err(Stop::TimedOut { hangs }) => (judge_timeout(gate, hangs), false),
        Err(Stop::Cancelled) => return Err(cancelled(gate, "ran")),
    };
    Ok(Attempt {
        assessment,
        evidence,
        lasting,
    })
}

/// The verdict of the gate that reports missing GPUs. Another run would give the same verdict.
fn report_no_gpu(gate: &Gate, bench: &Bench<'_>) -> (Assessment, bool) {
    bench.shared.report_no_gpu();
    (judge_no_gpu(gate, bench), true)
}

/// Measures once, or twice for a gate with a window. A fault in the first reading is the answer.
fn measure(gate: &Gate, bench: &Bench<'_>, evidence: &mut Evidence) -> Result<Reading, Stop> {
    let Some(window_s) = gate.window_s else {
        return measure_now(gate, bench, evidence);
    };
    let before = measure_now(gate, bench, evidence)?;
    if !before.faults.is_empty() {
        return Ok(before);
    }
    window::wait(bench.cx, Duration::from_secs(window_s)).map_err(|ended| match ended {
        window::Ended::Cancelled => Stop::Cancelled,
        window::Ended::Deadline => {
            Stop::Unknown("the job's deadline passed during the gate's window".into())
        }
    })?;
    let after = measure_now(gate, bench, evidence)?;
    if !after.faults.is_empty() {
        return Ok(after);
    }
    window::grown(&before, after).map_err(Stop::Unknown)
}

/// Measures in this process, or runs the tool: once, or once per target.
fn measure_now(gate: &Gate, bench: &Bench<'_>, evidence: &mut Evidence) -> Result<Reading, Stop> {
    if gate.argv.is_empty() {
        return parsers::measure(gate, bench).map_err(Stop::Unknown);
    }
    let Some(each) = gate.each else {
        return run_once(gate, bench, None, evidence);
    };
    measure_targets(gate, list_targets(each, bench), bench, evidence)
}

/// Runs the tool once per target. A target without an answer must not hide the fault of another
/// target, so the other targets are measured as well. A timeout ends the gate: each further target
/// may take as long.
fn measure_targets(
    gate: &Gate,
    targets: Vec<Result<Target, String>>,
    bench: &Bench<'_>,
    evidence: &mut Evidence,
) -> Result<Reading, Stop> {
    let (mut all, mut first, mut answers) = (Reading::default(), None, 0_u32);
    for target in targets {
        let ended = target.map_err(Stop::Unknown).and_then(|target| {
            let reading = run_once(gate, bench, Some(&target), evidence)
                .map_err(|stop| name_stop(stop, &target))?;
            Ok((reading, target))
        });
        let gap = match ended {
            Ok((reading, target)) => {
                all.join(reading, &target.entity);
                answers += 1;
                continue;
            }
            Err(Stop::TimedOut { hangs }) if answers > 0 && gate.on_timeout == OnTimeout::Error => {
                all.gaps.push(tool::overdue(gate.timeout_s, hangs));
                break;
            }
            Err(stop @ (Stop::TimedOut { .. } | Stop::Absent(_) | Stop::Cancelled)) => {
                return Err(stop);
            }
            Err(stop @ (Stop::Unknown(_) | Stop::Limited(_))) => stop,
        };
        if let Stop::Unknown(why) | Stop::Limited(why) = &gap {
            all.gaps.push(why.clone());
        }
        first = first.or(Some(gap));
    }
    match first {
        Some(stop) if answers == 0 => Err(stop),
        _ => Ok(all),
    }
}

/// Names the target in the reason of a missing answer.
fn name_stop(stop: Stop, target: &Target) -> Stop {
    let named = |why: String| format!("{}: {why}", target.entity);
    match stop {
        Stop::Unknown(why) => Stop::Unknown(named(why)),
        Stop::Limited(why) => Stop::Limited(named(why)),
        other @ (Stop::Absent(_) | Stop::TimedOut { .. } | Stop::Cancelled) => other,
    }
}

/// Runs the tool once, or takes the answer of another gate with the same call, and parses the answer.
fn run_once(
    gate: &Gate,
    bench: &Bench<'_>,
    target: Option<&Target>,
    evidence: &mut Evidence,
) -> Result<Reading, Stop> {
    let serial = target.map(|target| target.entity.as_str());
    let each = target.map(|target| target.word.as_str());
    let scratch = Scratch::new(&bench.machine).map_err(|failure| Stop::Unknown(failure.message))?;
    let argv = expand_argv(gate, &collect_words(bench.plan, each, Some(&scratch)))?;
    // The evidence names the newest call, so that an operator can repeat the call by hand. With several targets, each call is above its output.
    evidence.argv.clone_from(&argv);
    let title = serial.map(|serial| format!("{serial}: {}", argv.join(" ")));
    let finished = match bench.shared.find_answer(gate, &argv) {
        Some((by, finished)) => {
            bench
                .cx
                .log(&format!("{}: uses the output of gate {by}", gate.id));
            finished
        }
        None => {
            let folder = scratch.path();
            let finished = run_under_watch(gate, bench, &argv, folder).map_err(|error| {
                keep_files(evidence, gate, &scratch, serial);
                classify_error(error, gate, evidence)
            })?;
            let finished = Rc::new(finished);
            bench.shared.keep_answer(gate, argv.clone(), &finished);
            finished
        }
    };
    keep_output(
        evidence,
        title.as_deref(),
        &finished.stdout,
        &finished.stderr,
    );
    keep_files(evidence, gate, &scratch, serial);
    evidence.exit = finished.status.code();
    let reading = read_answer(gate, bench, &argv[0], &finished, &scratch, serial)?;
    Ok(name_samples(reading, serial))
}

/// Parses the tool's output, or the output file named by the gate.
fn read_answer(
    gate: &Gate,
    bench: &Bench<'_>,
    program: &str,
    finished: &Finished,
    scratch: &Scratch,
    serial: Option<&str>,
) -> Result<Reading, Stop> {
    let exit = check_exit(gate, program, finished)?;
    let (answer, messages) = match &gate.output {
        None => (finished.stdout.clone(), finished.stderr.clone()),
        Some(name) => {
            let most = parsers::answer_max(&gate.parser) as u64;
            let messages = [&finished.stderr[..], &finished.stdout].join(&b'\n');
            match files::read_capped(&scratch.path().join(name), most) {
                Ok(bytes) => (bytes, messages),
                // The messages alone may report a fault.
                Err(error) => {
                    let tool = ToolAnswer {
                        exit,
                        answer: b"",
                        messages: &messages,
                    };
                    let read = parse_answer(gate, bench.plan, &tool, serial).ok();
                    return read
                        .filter(|reading| !reading.faults.is_empty())
                        .ok_or_else(|| {
                            Stop::Unknown(format!(
                                "{program} ended with {exit} and left no readable {name}: {error}"
                            ))
                        });
                }
            }
        }
    };
    let tool = ToolAnswer {
        exit,
        answer: &answer,
        messages: &messages,
    };
    parse_answer(gate, bench.plan, &tool, serial)
}

/// Runs the tool, while other gates sample the machine.
fn run_under_watch(
    gate: &Gate,
    bench: &Bench<'_>,
    argv: &[String],
    folder: &Path,
) -> Result<Finished, ToolError> {
    let place = Place {
        plan: bench.plan,
        cx: bench.cx,
        guard: bench.guard,
        machine: &bench.machine,
    };
    let run = || run_tool(gate, place, argv, Some(folder));
    let ran = during::run_watched(gate, bench, run);
    if !matches!(ran, Err(ToolError::Missing(_))) {
        bench.shared.note_load(gate);
    }
    ran
}

/// Sets the entity of every sample to the target's name, and names the target of unread values.
fn name_samples(mut reading: Reading, serial: Option<&str>) -> Reading {
    if let Some(serial) = serial {
        for sample in &mut reading.samples {
            sample.entity = serial.to_owned();
        }
        for value in &mut reading.unread {
            value.reason = format!("{serial}: {}", value.reason);
        }
    }
    reading
}
