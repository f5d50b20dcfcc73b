//! The verbs and their output: JSON on stdout; a failure is one JSON [`Failure`] line on stderr.

use std::process::ExitCode;
use std::time::Duration;

use muster_core::wire::node::{Failure, FailureCode};
use serde::Serialize;

use crate::failure::{fatal, io};
use crate::job::{self, JobContext, parse_job};
use crate::terminal::{report, usage, version};
use crate::{exec, gates, health, inventory, live, record, tool};

/// Longest inventory. An inventory reads files; only a hung GPU driver can slow the reading.
const INVENTORY_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the verb named by the first argument. Exit codes: 0 done, 1 failed, 2 usage error. The verb
/// `gate` has its own exit codes.
pub fn main(arguments: Vec<String>) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match words[..] {
        ["gate", ..] => return gates::command(&arguments[1..]),
        ["pair", ..] => return gates::pair_command(&arguments[1..]),
        ["health", ..] => return health::command(&arguments[1..]),
        ["record", ref arguments @ ..] => record::command(arguments).ok_or_else(usage),
        // Internal verb: `run` starts a job's process under the name `exec-job`.
        ["exec-job", job] => parse_job(job).and_then(exec::exec),
        // Internal verb: a gate's tool starts with its limits under the name `exec-tool`.
        ["exec-tool", ref arguments @ ..] => tool::exec_tool(arguments),
        // Internal verb: `live` starts the LLDP listener under the name `listen`.
        ["listen"] => inventory::neighbours::listen().map(|()| ExitCode::SUCCESS),
        _ => verb(&words).map(|()| ExitCode::SUCCESS),
    };
    ended.unwrap_or_else(|failure| report(&failure))
}

fn verb(words: &[&str]) -> Result<(), Failure> {
    match *words {
        ["version"] => print(&version()?),
        ["live"] => live::run(),
        ["inventory"] => print(&inventory::collect(&JobContext::foreground(
            INVENTORY_TIMEOUT,
        ))),
        ["inventory", "-"] => {
            inventory::neighbours::await_those_of(std::io::stdin().lock())?;
            print(&inventory::collect(&JobContext::foreground(
                INVENTORY_TIMEOUT,
            )))
        }
        ["run", job, attempt] => {
            let attempt = attempt.parse().map_err(|_| usage())?;
            print(&job::run(
                parse_job(job)?,
                attempt,
                std::io::stdin().lock(),
            )?)
        }
        ["attach", job, offset] => {
            let offset = offset.parse().map_err(|_| usage())?;
            job::attach(parse_job(job)?, offset, std::io::stdout().lock())
        }
        ["answer", job] => job::answer(parse_job(job)?, std::io::stdin().lock()),
        ["cancel", job] => job::cancel(parse_job(job)?),
        _ => Err(usage()),
    }
}

fn print(document: &impl Serialize) -> Result<(), Failure> {
    use std::io::Write as _;
    let text = serde_json::to_string(document)
        .map_err(|error| fatal(FailureCode::Malformed, error.to_string()))?;
    writeln!(std::io::stdout(), "{text}").map_err(io("stdout"))
}
