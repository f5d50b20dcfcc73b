//! Requests to a running job: the answer to its challenge, and the cancellation.

use std::io::Read;

use muster_core::ids::JobId;
use muster_core::wire::node::{Answer, Failure, FailureCode};

use super::lock;
use super::spool::Spool;
use crate::failure::{fatal, io};
use crate::files;

/// Longest answer, in bytes.
const ANSWER_MAX: u64 = 64 << 10;

/// Writes the server's answer to the file read by the waiting job.
///
/// # Errors
/// `no_job` when the job is not running, `malformed`, `io`.
pub fn answer(job: JobId, answer: impl Read) -> Result<(), Failure> {
    let spool = living(job)?;
    let mut bytes = Vec::new();
    answer
        .take(ANSWER_MAX)
        .read_to_end(&mut bytes)
        .map_err(io("reading the answer"))?;
    let answer: Answer = serde_json::from_slice(&bytes).map_err(|error| {
        fatal(
            FailureCode::Malformed,
            format!("the answer is malformed: {error}"),
        )
    })?;
    files::write_json(&spool.answer(), 0o600, &answer)
}

/// Asks a job to stop. The job ends with the result `cancelled` within about a minute. A job
/// changing packages or boot files completes the change first.
///
/// # Errors
/// `no_job` when the job is not running, `io`.
pub fn cancel(job: JobId) -> Result<(), Failure> {
    let spool = living(job)?;
    std::fs::write(spool.cancel(), b"").map_err(io(spool.cancel().display()))
}

fn living(job: JobId) -> Result<Spool, Failure> {
    match lock::alive()? {
        Some(alive) if alive == job => Ok(Spool::of(job)),
        _ => Err(fatal(
            FailureCode::NoJob,
            format!("job {job} is not running on this node"),
        )),
    }
}
