//! The verbs' usage, the program's version, and failures as a line on stderr.

use std::process::ExitCode;

use muster_core::values::Digest;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, FailureCode, Version};
use sha2::{Digest as _, Sha256};

use crate::failure::{fatal, io};

const USAGE: &str = "usage: muster-node version | live | inventory [-] | run JOB ATTEMPT | attach JOB OFFSET | answer JOB | cancel JOB | \
                     gate --help | gate parse PARSER FILE [--json] | pair --help | health --help | \
                     record DIR [--timeout SECONDS] [-- COMMAND ARGUMENT…]";

/// Prints a failure as one JSON line on stderr and returns the exit code: 2 for `usage`, 1 for all
/// other failures.
pub(crate) fn report(failure: &Failure) -> ExitCode {
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

pub(crate) fn version() -> Result<Version, Failure> {
    let mut file =
        std::fs::File::open("/proc/self/exe").map_err(io("reading muster-node's executable"))?;
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut hash).map_err(io("reading muster-node's executable"))?;
    Ok(Version {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        digest: Digest(hash.finalize().into()),
    })
}

pub(crate) fn usage() -> Failure {
    fatal(FailureCode::Usage, USAGE)
}
