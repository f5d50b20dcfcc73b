//! The verbs, and how they end: JSON on stdout; on failure one JSON [`Failure`] line on stderr.

use std::process::ExitCode;
use std::time::Duration;

use muster_core::values::Digest;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, FailureCode, Version};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::failure::{fatal, io};
use crate::job::{self, JobContext, parse_job};
use crate::{gates, health, inventory, live, record};

const USAGE: &str = "usage: muster-node version | live | inventory | run JOB ATTEMPT | attach JOB OFFSET | answer JOB | cancel JOB | \
                     gate --help | gate parse PARSER FILE [--json] | pair --help | health --help | \
                     record DIR [--timeout SECONDS] [-- COMMAND ARGUMENT…]";
/// An inventory reads files; only a hung GPU driver can slow it.
const INVENTORY_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the verb named by the first argument. Exit codes: 0 done, 1 failed, 2 not understood; those of `gate` are its own.
pub fn main(arguments: Vec<String>) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match words[..] {
        ["gate", ..] => return gates::command(&arguments[1..]),
        ["pair", ..] => return gates::pair_command(&arguments[1..]),
        ["health", ..] => return health::command(&arguments[1..]),
        ["record", ref arguments @ ..] => record::command(arguments).ok_or_else(usage),
        // Not a verb for people: what `run` starts.
        ["exec-job", job] => parse_job(job).and_then(job::exec),
        // Likewise, what `live` leaves behind.
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

/// Prints a failure as one JSON line on stderr and gives its exit code.
pub fn report(failure: &Failure) -> ExitCode {
    eprintln!(
        "{}",
        serde_json::to_string(failure).unwrap_or_else(|_| failure.message.clone())
    );
    ExitCode::from(if failure.code == FailureCode::Usage {
        2
    } else {
        1
    })
}

fn version() -> Result<Version, Failure> {
    let mut file = std::fs::File::open("/proc/self/exe").map_err(io("my own executable"))?;
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut hash).map_err(io("my own executable"))?;
    Ok(Version {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        digest: Digest(hash.finalize().into()),
    })
}

fn print(document: &impl Serialize) -> Result<(), Failure> {
    use std::io::Write as _;
    let text = serde_json::to_string(document)
        .map_err(|error| fatal(FailureCode::Malformed, error.to_string()))?;
    writeln!(std::io::stdout(), "{text}").map_err(io("stdout"))
}

fn usage() -> Failure {
    fatal(FailureCode::Usage, USAGE)
}
