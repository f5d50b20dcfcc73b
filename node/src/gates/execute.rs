//! One gate: its tool is run, or muster-node measures by itself; what was read is held against the criteria.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use muster_core::facts::{Disk, DiskTransport, Facts};
use muster_core::gates::{
    Assessment, Each, Evidence, Gate, GateResult, Mode, OnTimeout, Reference, Sample, Verdict,
    assess, unmeasurable,
};
use muster_core::profiles::HardwareProfile;
use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::{Failure, GatePlan};

use super::parsers::{self, Answer, Reading};
use super::scratch::Scratch;
use super::{Bench, during, kernel_log, needs, window};
use crate::converge::machine::Machine;
use crate::failure::fatal;
use crate::files;
use crate::job::JobContext;
use crate::tool::{self, Call, Finished, ToolError};

/// Kept of each stream as evidence, in bytes, from its end.
const EVIDENCE_MAX: usize = 64 << 10;
/// Between two looks at what settles after a boot.
const SETTLE_EVERY: Duration = Duration::from_secs(3);
/// Reasons that are kept of runs before the one that counts.
const FORMER_MAX: usize = 10;

/// Why there is nothing to hold against the criteria.
pub(super) enum Stop {
    /// No answer that counts.
    Unknown(String),
    /// What it needs is not on this node: running it again changes nothing.
    Absent(String),
    /// It did not come back within its own time, and may not even have died of it.
    TimedOut { hangs: bool },
    /// The whole run ends.
    Cancelled,
}

/// Runs one gate to its verdict, again after an error as often as it says.
///
/// # Errors
/// `cancelled` alone; everything else is a verdict.
pub(super) fn execute(gate: &Gate, bench: &Bench<'_>) -> Result<GateResult, Failure> {
    let (started_at, started) = (bench.cx.clock().now(), Instant::now());
    let from_us = kernel_log::now_us(&bench.machine);
    let (mut former, mut errors) = (Vec::new(), 0);
    let (assessment, mut evidence) = loop {
        let (assessment, evidence, lasting) = attempt(gate, bench)?;
        if !gate.effects.is_empty() || assessment.verdict == Verdict::Error {
            bench.shared.forget();
        }
        let settles = !lasting && settling(gate, &assessment, &bench.machine).is_some();
        // What listens for a pair gate is gone with the first run: whoever started both ends runs both again.
        let retries = if gate.peer.is_some() { 0 } else { gate.retries };
        let errs = assessment.verdict == Verdict::Error && !lasting && errors < retries;
        if !(settles || errs) {
            break (assessment, evidence);
        }
        bench.cx.log(&format!(
            "{}: run again after: {}",
            gate.id, assessment.reason
        ));
        if settles {
            bench.shared.forget();
            match window::wait(bench.cx, SETTLE_EVERY) {
                Ok(()) => {}
                Err(window::Ended::Deadline) => {
                    break (unsettled(gate, assessment, &bench.machine), evidence);
                }
                Err(window::Ended::Cancelled) => {
                    return Err(fatal(
                        "cancelled",
                        format!("the job was cancelled while gate {} settled", gate.id),
                    ));
                }
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
    let ended = result(gate, bench, verdict, reason);
    Ok(GateResult {
        measured,
        started_at,
        duration_ms,
        former,
        evidence: evidence.sealed(),
        ..ended
    })
}

/// Seconds since the boot, where what a gate missed may only not be up yet.
fn settling(gate: &Gate, assessment: &Assessment, machine: &Machine) -> Option<u64> {
    let up_s = kernel_log::now_us(machine)? / 1_000_000;
    (matches!(assessment.verdict, Verdict::Fail | Verdict::Error) && up_s < gate.settle_s)
        .then_some(up_s)
}

/// What was missed while it was settling, and there was no time to wait for it: no answer.
fn unsettled(gate: &Gate, assessment: Assessment, machine: &Machine) -> Assessment {
    let Some(up_s) = settling(gate, &assessment, machine) else {
        return assessment;
    };
    let reason = format!(
        "{}; {up_s} s after its boot, of {} in which it may settle",
        assessment.reason, gate.settle_s
    );
    Assessment {
        verdict: Verdict::Error,
        reason,
        ..assessment
    }
}

/// Once: the verdict, what is kept of it, and whether another time can only end the same.
fn attempt(gate: &Gate, bench: &Bench<'_>) -> Result<(Assessment, Evidence, bool), Failure> {
    let mut evidence = Evidence {
        argv: gate.argv.clone(),
        ..Evidence::default()
    };
    if let Some(reason) = needs::refusal(gate, bench) {
        return Ok((without(Verdict::Skipped, reason), evidence, true));
    }
    let unmeasurable =
        unmeasurable(gate, &reference(bench)).or_else(|| parsers::absent(gate, bench));
    if let (Some(during), None) = (&gate.during, &unmeasurable) {
        let seen = during::seen(gate, during, bench);
        return Ok(match seen {
            Ok((assessment, evidence)) => (assessment, evidence, true),
            Err(why) => (absent(gate, &bench.plan.profile, why), evidence, true),
        });
    }
    let read = match unmeasurable {
        Some(why) => Err(Stop::Absent(why)),
        None if gate.peer.is_some() && !bench.plan.variables.contains_key("pair_port") => Err(
            Stop::Absent("it is measured between two nodes: muster-node pair".into()),
        ),
        None => run(gate, bench, &mut evidence),
    };
    let (assessment, lasting) = match read {
        Ok(reading) => (
            judge(gate, &reference(bench), reading, &mut evidence),
            false,
        ),
        Err(Stop::Unknown(why)) => (without(Verdict::Error, why), false),
        Err(Stop::Absent(why)) => (absent(gate, &bench.plan.profile, why), true),
        Err(Stop::TimedOut { hangs }) => (timed_out(gate, hangs), false),
        Err(Stop::Cancelled) => {
            return Err(fatal(
                "cancelled",
                format!("the job was cancelled while gate {} ran", gate.id),
            ));
        }
    };
    Ok((assessment, evidence, lasting))
}

pub(super) fn without(verdict: Verdict, reason: String) -> Assessment {
    Assessment {
        verdict,
        reason,
        measured: Vec::new(),
    }
}

/// A gate that must be measured and cannot be has no answer; one that need not be says why it has none.
pub(super) fn absent(gate: &Gate, profile: &HardwareProfile, why: String) -> Assessment {
    let verdict = match gate.mode(Some(profile)) {
        Mode::Required => Verdict::Error,
        Mode::Optional | Mode::Shadow => Verdict::Skipped,
    };
    without(verdict, why)
}

/// A gate that was not worth running, because an earlier stage is not through.
pub(super) fn skipped(gate: &Gate, by: &str, bench: &Bench<'_>) -> GateResult {
    let reason = format!("not run: gate {by} of an earlier stage did not pass");
    result(gate, bench, Verdict::Skipped, reason)
}

fn result(gate: &Gate, bench: &Bench<'_>, verdict: Verdict, reason: String) -> GateResult {
    let mode = gate.mode(Some(&bench.plan.profile));
    let Gate {
        id, title, stage, ..
    } = gate.clone();
    GateResult {
        gate: id,
        title,
        stage,
        required: mode == Mode::Required,
        shadow: mode == Mode::Shadow,
        verdict,
        reason,
        measured: Vec::new(),
        started_at: bench.cx.clock().now(),
        duration_ms: 0,
        former: Vec::new(),
        finding: String::new(),
        waived: None,
        evidence: Evidence::default(),
    }
}

fn reference<'a>(bench: &'a Bench<'_>) -> Reference<'a> {
    reference_of(bench.plan, bench.facts)
}

pub(super) fn reference_of<'a>(plan: &'a GatePlan, facts: &'a Facts) -> Reference<'a> {
    Reference {
        profile: &plan.profile,
        facts,
        stack: plan.stack.as_ref(),
        variables: &plan.variables,
    }
}

pub(super) fn judge(
    gate: &Gate,
    reference: &Reference<'_>,
    reading: Reading,
    evidence: &mut Evidence,
) -> Assessment {
    let mut assessment = assess(gate, &reading.samples, reference);
    evidence.versions = reading.versions;
    if !reading.notes.is_empty() {
        let notes = reading.notes.join("\n");
        if evidence.stdout.is_empty() {
            evidence.stdout = tool::tail(notes.as_bytes(), EVIDENCE_MAX);
        }
        if assessment.verdict != Verdict::Pass {
            let shown = reading.notes[..reading.notes.len().min(5)].join("; ");
            assessment.reason = format!("{}: {shown}", assessment.reason);
        }
    }
    assessment
}

pub(super) fn timed_out(gate: &Gate, hangs: bool) -> Assessment {
    let reason = tool::overdue(gate.timeout_s, hangs);
    let verdict = match gate.on_timeout {
        OnTimeout::Error => Verdict::Error,
        OnTimeout::Fail => Verdict::Fail,
    };
    Assessment {
        verdict,
        reason,
        measured: Vec::new(),
    }
}

/// Measures; twice, for what grew meanwhile, where the gate says so.
fn run(gate: &Gate, bench: &Bench<'_>, evidence: &mut Evidence) -> Result<Reading, Stop> {
    let Some(window_s) = gate.window_s else {
        return run_now(gate, bench, evidence);
    };
    let before = run_now(gate, bench, evidence)?;
    window::wait(bench.cx, Duration::from_secs(window_s)).map_err(|ended| match ended {
        window::Ended::Cancelled => Stop::Cancelled,
        window::Ended::Deadline => {
            Stop::Unknown("the job's deadline ended it within its window".into())
        }
    })?;
    let after = run_now(gate, bench, evidence)?;
    window::grown(&before, after).map_err(Stop::Unknown)
}

/// Measures by itself, or runs the tool, once or once for each disk or mount, and reads its answers.
fn run_now(gate: &Gate, bench: &Bench<'_>, evidence: &mut Evidence) -> Result<Reading, Stop> {
    if gate.argv.is_empty() {
        return parsers::measure(gate, bench).map_err(Stop::Unknown);
    }
    let Some(each) = gate.each else {
        return run_once(gate, bench, None, evidence);
    };
    let mut all = Reading::default();
    for one in ones(each, bench)? {
        let reading = run_once(gate, bench, Some(&one), evidence)?;
        all.samples.extend(reading.samples);
        all.notes.extend(reading.notes);
        all.versions.extend(reading.versions);
    }
    Ok(all)
}

/// One of those a gate is run for.
pub(super) struct One {
    /// What `${each}` stands for.
    word: String,
    /// Whose the results are.
    entity: String,
}

/// Those a gate is run for, in their order.
fn ones(each: Each, bench: &Bench<'_>) -> Result<Vec<One>, Stop> {
    let disk = |disk: &Disk| {
        let serial = disk
            .serial
            .clone()
            .ok_or_else(|| Stop::Unknown(format!("disk {} has no serial", disk.name)))?;
        Ok(One {
            word: format!("/dev/{}", disk.name),
            entity: serial,
        })
    };
    let disks = bench.facts.disks.iter();
    let of = |transport| {
        disks
            .clone()
            .filter(move |disk| disk.transport == transport)
    };
    match each {
        Each::Disks => disks.clone().map(disk).collect(),
        Each::NvmeDisks => of(DiskTransport::Nvme).map(disk).collect(),
        Each::SataDisks => of(DiskTransport::Sata).map(disk).collect(),
        Each::Mounts => {
            let mounts = bench.plan.stack.iter().flat_map(ConvergePlan::mounts);
            Ok(mounts
                .map(|(_, place)| One {
                    word: place.clone(),
                    entity: place,
                })
                .collect())
        }
    }
}

fn run_once(
    gate: &Gate,
    bench: &Bench<'_>,
    one: Option<&One>,
    evidence: &mut Evidence,
) -> Result<Reading, Stop> {
    let serial = one.map(|one| one.entity.as_str());
    let scratch = Scratch::new(&bench.machine).map_err(|failure| Stop::Unknown(failure.message))?;
    let words = words(bench.plan, one, Some(&scratch));
    let expanded = |argument: &String| expand(argument, &words).map_err(Stop::Absent);
    let argv = gate
        .argv
        .iter()
        .map(expanded)
        .collect::<Result<Vec<_>, _>>()?;
    // What was run, so that it can be run again by hand; of several, each above its answer, and the newest here.
    evidence.argv.clone_from(&argv);
    let title = serial.map(|serial| format!("{serial}: {}", argv.join(" ")));
    let finished = match bench.shared.find(gate, &argv) {
        Some((by, finished)) => {
            bench
                .cx
                .log(&format!("{}: shares what {by} was told", gate.id));
            finished
        }
        None => {
            let asked = ask(gate, bench, &argv);
            let finished = Rc::new(asked.map_err(|error| {
                keep_files(evidence, gate, &scratch, serial);
                stopped(error, gate, evidence)
            })?);
            bench.shared.told(gate, argv.clone(), &finished);
            finished
        }
    };
    keep(
        evidence,
        title.as_deref(),
        &finished.stdout,
        &finished.stderr,
    );
    keep_files(evidence, gate, &scratch, serial);
    evidence.exit = finished.status.code();
    let exit = exit_of(gate, &argv[0], &finished)?;
    let (answer, messages) = match &gate.output {
        None => (finished.stdout.clone(), finished.stderr.clone()),
        Some(name) => {
            let bytes = files::read_capped(
                &scratch.path().join(name),
                parsers::answer_max(&gate.parser) as u64,
            );
            let bytes = bytes.map_err(|error| {
                Stop::Unknown(format!(
                    "{} ended with {exit} and left no readable {name}: {error}",
                    argv[0]
                ))
            })?;
            (bytes, [&finished.stderr[..], &finished.stdout].join(&b'\n'))
        }
    };
    let reading = understand(gate, bench.plan, (exit, &answer, &messages), serial)?;
    Ok(named(reading, serial))
}

/// The status of a tool that ended by itself, and said no more than is read.
pub(super) fn exit_of(gate: &Gate, program: &str, finished: &Finished) -> Result<i32, Stop> {
    let killed = || {
        format!(
            "{program} was killed by signal {}",
            finished.status.signal().unwrap_or_default()
        )
    };
    let exit = finished
        .status
        .code()
        .ok_or_else(|| Stop::Unknown(killed()))?;
    if finished.open {
        return Err(Stop::Unknown(format!(
            "{program} ended, and something that it left behind still holds its output open"
        )));
    }
    let most = parsers::answer_max(&gate.parser);
    match finished.truncated || finished.stdout.len() > most {
        true => Err(Stop::Unknown(format!(
            "{program} said more than {most} bytes"
        ))),
        false => Ok(exit),
    }
}

/// What the gate's parser makes of an answer.
pub(super) fn understand(
    gate: &Gate,
    plan: &GatePlan,
    (exit, answer, messages): (i32, &[u8], &[u8]),
    serial: Option<&str>,
) -> Result<Reading, Stop> {
    let messages = String::from_utf8_lossy(messages);
    let reading = parsers::text(&gate.parser, answer).and_then(|text| {
        let answer = Answer {
            exit,
            text: &text,
            messages: &messages,
            serial,
        };
        parsers::parse_by(&gate.parser, &answer, plan.xid.as_ref())
    });
    reading.map_err(|why| Stop::Unknown(format!("{} ended with {exit}: {why}", gate.parser)))
}

/// Runs the tool, with the gates that look on meanwhile.
fn ask(gate: &Gate, bench: &Bench<'_>, argv: &[String]) -> Result<Finished, ToolError> {
    during::watched(gate, bench, || called(gate, bench.cx, argv))
}

/// Runs the tool within the gate's own time; nothing of it outlives the gate.
pub(super) fn called(gate: &Gate, cx: &JobContext, argv: &[String]) -> Result<Finished, ToolError> {
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let env: Vec<(&str, &str)> = gate
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let (timeout, superseded) = (
        Some(Duration::from_secs(gate.timeout_s)),
        parsers::superseded(&gate.parser),
    );
    tool::run(
        cx,
        &Call {
            argv: &argv,
            env: &env,
            timeout,
            kills_leftovers: true,
            superseded,
            ..Call::default()
        },
    )
}

/// What `${word}` stands for.
pub(super) fn words(
    plan: &GatePlan,
    one: Option<&One>,
    scratch: Option<&Scratch>,
) -> BTreeMap<String, String> {
    let mut words = plan.variables.clone();
    words.extend(scratch.map(|scratch| {
        (
            "scratch".to_owned(),
            scratch.path().to_string_lossy().into_owned(),
        )
    }));
    words.extend(one.map(|one| ("each".to_owned(), one.word.clone())));
    words.extend(
        plan.profile
            .gpus
            .as_ref()
            .map(|gpus| ("gpus".to_owned(), gpus.count.to_string())),
    );
    words
}

/// Keeps the ends of the files a gate names; those that are not there were never written.
fn keep_files(evidence: &mut Evidence, gate: &Gate, scratch: &Scratch, serial: Option<&str>) {
    for name in gate.output.iter().chain(&gate.keep) {
        let most = parsers::answer_max(&gate.parser) as u64;
        let Ok(bytes) = files::read_capped(&scratch.path().join(name), most) else {
            continue;
        };
        let name = serial.map_or_else(|| name.clone(), |serial| format!("{serial}/{name}"));
        evidence
            .files
            .insert(name, tool::tail(&bytes, EVIDENCE_MAX));
    }
}

/// Readings of one disk or mount carry what it is called by.
fn named(mut reading: Reading, serial: Option<&str>) -> Reading {
    if let Some(serial) = serial {
        reading
            .samples
            .iter_mut()
            .for_each(|sample: &mut Sample| sample.entity = serial.to_owned());
    }
    reading
}

pub(super) fn stopped(error: ToolError, gate: &Gate, evidence: &mut Evidence) -> Stop {
    match error {
        ToolError::Cancelled(_) => Stop::Cancelled,
        ToolError::TimedOut {
            after,
            stdout,
            stderr,
            hangs,
            ..
        } => {
            keep(evidence, None, &stdout, &stderr);
            match after >= Duration::from_secs(gate.timeout_s) {
                true => Stop::TimedOut { hangs },
                // Cut short by the job's own deadline, it says nothing about the hardware.
                false => Stop::Unknown(format!(
                    "the job's deadline ended it after {} s",
                    after.as_secs()
                )),
            }
        }
        missing @ ToolError::Missing(_) => Stop::Absent(Failure::from(missing).message),
        other @ ToolError::Io(..) => Stop::Unknown(Failure::from(other).message),
    }
}

/// Adds a run's output to the evidence, newest last, within the cap.
pub(super) fn keep(evidence: &mut Evidence, title: Option<&str>, stdout: &[u8], stderr: &[u8]) {
    for (kept, stream) in [
        (&mut evidence.stdout, stdout),
        (&mut evidence.stderr, stderr),
    ] {
        let text = tool::tail(stream, EVIDENCE_MAX);
        if text.is_empty() {
            continue;
        }
        let title = title
            .map(|title| format!("== {title}\n"))
            .unwrap_or_default();
        let joined = format!(
            "{kept}{}{title}{text}",
            if kept.is_empty() { "" } else { "\n" }
        );
        *kept = tool::tail(joined.as_bytes(), EVIDENCE_MAX);
    }
}

/// `${word}` becomes the word's value. A value is never looked at again, and never splits into two arguments.
pub(super) fn expand(argument: &str, words: &BTreeMap<String, String>) -> Result<String, String> {
    let mut pieces = argument.split("${");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (word, rest) = piece
            .split_once("}")
            .ok_or_else(|| format!("{argument:?} has an open ${{"))?;
        text.push_str(
            words
                .get(word)
                .ok_or_else(|| format!("no variable {word} was given"))?,
        );
        text.push_str(rest);
    }
    Ok(text)
}
