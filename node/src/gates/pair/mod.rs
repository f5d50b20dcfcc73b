//! `muster-node pair serve|ask`: the two ends of a pair gate. By hand with the options of `gate`;
//! with `-` the first line of stdin is the plan, and the
//! listening end stops at the end of its input, because the caller is then gone.

mod port; // The port of a pair
mod serve; // The listening end

use std::io::{BufRead as _, Read as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use muster_core::gates::Gate;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, FailureCode, GatePlan};
use muster_core::wire::pair::{PairAnswer, PairPlan};

use super::command::{Wanted, parse};
use crate::failure::{fatal, io};
use crate::job::{JobContext, lock};
use crate::{gates, terminal};

const USAGE: &str = "\
muster-node pair serve --suite SUITE --profile PROFILE --only ID [--set NAME=VALUE]... [--drained]
muster-node pair ask   --suite SUITE --profile PROFILE --only ID --set peer_address=ADDRESS --set pair_port=PORT [--set …]... [--drained] [--json]

One gate between two nodes: start `serve` on one of them. It chooses a port, starts the tool, and prints a line with the port once the tool listens; then
start `ask` on the other. The tool that listens is killed when it has had its time, and with SIGINT, SIGTERM or SIGHUP. Measure both ways: a port can be slow in one.

  -    in place of the options: the plan, as one line of JSON on stdin

Exit codes of serve: 0 it ended, or was told to; 1 it did not listen, or had its time. Those of ask are the exit codes of `muster-node gate`; with `-` it is 0
when there is an answer.";
/// Maximum length of a plan, in bytes.
const PLAN_MAX: u64 = 4 << 20;
/// Time beyond the gate's own times: for the start, and for the connection between both ends.
const MARGIN: Duration = Duration::from_secs(10);

/// Executes the subcommand.
pub fn command(arguments: &[String]) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match words[..] {
        ["serve", "-"] => read_plan().and_then(|given| {
            let _held = lock::take(given.job)?;
            serve::run(&given.plan, serve::Until::InputEnds)
        }),
        ["serve", ..] => {
            by_hand(&arguments[1..]).and_then(|plan| serve::run(&plan, serve::Until::Told))
        }
        ["ask", "-"] => read_plan().and_then(|given| ask(&given)),
        // By hand like any other gate: variables name the other end.
        ["ask", ..] => return gates::command(&arguments[1..]),
        _ => {
            println!("{USAGE}");
            return ExitCode::from(u8::from(words != ["--help"]) * 2);
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => terminal::report(&failure),
    }
}

fn by_hand(arguments: &[String]) -> Result<GatePlan, Failure> {
    match parse(arguments)? {
        Wanted::Run { plan, .. } => Ok(*plan),
        Wanted::Help | Wanted::List => Err(fatal(FailureCode::Usage, USAGE)),
    }
}

/// Reads the first line of stdin. The rest is ignored.
fn read_plan() -> Result<PairPlan, Failure> {
    let mut line = Vec::new();
    std::io::stdin()
        .lock()
        .take(PLAN_MAX)
        .read_until(b'\n', &mut line)
        .map_err(io("the plan"))?;
    let given: PairPlan = serde_json::from_slice(&line).map_err(|error| {
        fatal(
            FailureCode::BadPlan,
            format!("the plan cannot be read: {error}"),
        )
    })?;
    match given.protocol {
        PROTOCOL => Ok(given),
        other => Err(fatal(
            FailureCode::Protocol,
            format!("the plan speaks protocol {other}, this is {PROTOCOL}"),
        )),
    }
}

/// Runs the gate with the other end, and prints the result.
fn ask(given: &PairPlan) -> Result<(), Failure> {
    let gate = only_gate(&given.plan)?;
    let _held = lock::take(given.job)?;
    let cx = JobContext::foreground(Duration::from_secs(gate.timeout_s) + MARGIN);
    let gates::Ran {
        results,
        fingerprint,
        ..
    } = gates::run(&given.plan, &cx)?;
    say(&PairAnswer {
        results,
        fingerprint,
    })
}

/// Returns the single pair gate of a plan.
fn only_gate(plan: &GatePlan) -> Result<&Gate, Failure> {
    match gates::chosen(plan)?[..] {
        [gate] if gate.peer.is_some() => Ok(gate),
        [gate] => Err(fatal(
            FailureCode::BadPlan,
            format!("{} is measured on one node alone", gate.id),
        )),
        _ => Err(fatal(FailureCode::BadPlan, "one gate at a time: --only ID")),
    }
}

/// Prints a line of JSON, flushed.
fn say(line: &impl serde::Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string(line)
        .map_err(|error| fatal(FailureCode::Malformed, error.to_string()))?;
    text.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(io("stdout"))
}
