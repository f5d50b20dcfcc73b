//! The verbs, and how they end: JSON on stdout; on failure one JSON [`Failure`] line on stderr.

use std::process::ExitCode;

use muster_core::wire::node::Failure;

use crate::failure::fatal;

const USAGE: &str = "muster-node version | live | inventory | run JOB ATTEMPT | attach JOB OFFSET | answer JOB | cancel JOB | gate --suite FILE --profile FILE [--json]";

/// Runs the verb named by the first argument. Exit codes: 0 done, 1 failed, 2 not understood.
pub fn main(arguments: Vec<String>) -> ExitCode {
    let (verb, rest) = match arguments.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("", [].as_slice()),
    };
    let ended = match verb {
        "gate" => return crate::gates::command(rest),
        _ => Err(usage()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

/// Prints a failure as one JSON line on stderr and gives its exit code.
pub fn report(failure: &Failure) -> ExitCode {
    eprintln!("{}", serde_json::to_string(failure).unwrap_or_else(|_| failure.message.clone()));
    ExitCode::from(if failure.code == "usage" { 2 } else { 1 })
}

fn usage() -> Failure {
    fatal("usage", USAGE)
}
