//! Calls of a gate's tool: the arguments, the process, and the parsed answer.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Duration;

use muster_core::gates::{Evidence, Gate};
use muster_core::wire::node::{Failure, GatePlan};

use super::argv::expand_argument;
use super::evidence::keep_output;
use super::parsers::{self, Answer, Reading};
use super::program::find_program;
use crate::job::JobContext;
use crate::machine::Machine;
use crate::tool::{self, Call, Finished, Guard, ToolError};

/// The reason of a gate without a reading.
pub(super) enum Stop {
    /// The tool gave no usable answer.
    Unknown(String),
    /// The tool reached a limit; a second run gives the same result.
    Limited(String),
    /// The node lacks a requirement of the gate; a second run gives the same result.
    Absent(String),
    /// The tool did not end within the gate's time. A hanging tool survived the kill signal.
    TimedOut { hangs: bool },
    /// The whole run is cancelled.
    Cancelled,
}

/// A disk or mount of a gate.
pub(super) struct Target {
    /// The value of `${each}`.
    pub(super) word: String,
    /// The entity of the results.
    pub(super) entity: String,
}

/// The answer of a tool after a normal end.
pub(super) struct ToolAnswer<'a> {
    pub(super) exit: i32,
    pub(super) answer: &'a [u8],
    pub(super) messages: &'a [u8],
}

/// The gate's arguments with every `${word}` replaced.
pub(super) fn expand_argv(
    gate: &Gate,
    words: &BTreeMap<String, String>,
) -> Result<Vec<String>, Stop> {
    let expand = |argument: &String| expand_argument(argument, words).map_err(Stop::Absent);
    gate.argv.iter().map(expand).collect()
}

/// The surroundings of a tool.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) plan: &'a GatePlan,
    pub(super) cx: &'a JobContext,
    pub(super) guard: Option<&'a Guard>,
    pub(super) machine: &'a Machine,
}

/// Runs the tool within the gate's time, the limits of the guard and the sandbox of the gate, and
/// kills every process left behind by the tool. `folder`: the working folder, so that stray files
/// are removed.
pub(super) fn run_tool(
    gate: &Gate,
    place: Place<'_>,
    argv: &[String],
    folder: Option<&Path>,
) -> Result<Finished, ToolError> {
    let Place {
        plan,
        cx,
        guard,
        machine,
    } = place;
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let program = find_program(name, gate, plan, machine)?;
    let arguments = argv.iter().skip(1).map(String::as_str);
    let argv: Vec<&str> = std::iter::once(program.file.as_str())
        .chain(arguments)
        .collect();
    let env: Vec<(&str, &str)> = gate
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    tool::run(
        cx,
        &Call {
            argv: &argv,
            env: &env,
            path: program.path.as_deref(),
            folder: folder.filter(|_| !plan.is_former(&gate.id)),
            timeout: Some(Duration::from_secs(gate.timeout_s)),
            kills_leftovers: true,
            superseded: parsers::superseded(&gate.parser),
            guard,
            sandbox: program.sandbox.filter(|_| guard.is_some()),
            ..Call::default()
        },
    )
}

/// The reason of a tool stopped without an answer. The output before a timeout goes into the
/// evidence.
pub(super) fn classify_error(error: ToolError, gate: &Gate, evidence: &mut Evidence) -> Stop {
    match error {
        ToolError::Cancelled(_) => Stop::Cancelled,
        ToolError::TimedOut {
            after,
            stdout,
            stderr,
            hangs,
            ..
        } => {
            keep_output(evidence, None, &stdout, &stderr);
            match after >= Duration::from_secs(gate.timeout_s) {
                true => Stop::TimedOut { hangs },
                // The job's deadline ended the tool early, so the result has no meaning for the
                // hardware.
                false => Stop::Unknown(format!(
                    "the job's deadline ended it after {} s",
                    after.as_secs()
                )),
            }
        }
        ToolError::Limited {
            program,
            ceiling,
            stdout,
            stderr,
        } => {
            keep_output(evidence, None, &stdout, &stderr);
            Stop::Limited(format!("{program} {ceiling}"))
        }
        missing @ ToolError::Missing(_) => Stop::Absent(Failure::from(missing).message),
        other @ ToolError::Io(..) => Stop::Unknown(Failure::from(other).message),
    }
}

/// Returns the exit status. Refuses a killed tool, an output still open, and an output longer than
/// the parser reads.
pub(super) fn check_exit(gate: &Gate, program: &str, finished: &Finished) -> Result<i32, Stop> {
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

/// Parses an answer by the gate's parser.
pub(super) fn parse_answer(
    gate: &Gate,
    plan: &GatePlan,
    tool: &ToolAnswer<'_>,
    serial: Option<&str>,
) -> Result<Reading, Stop> {
    let exit = tool.exit;
    let messages = String::from_utf8_lossy(tool.messages);
    let reading = parsers::text(&gate.parser, tool.answer).and_then(|text| {
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
