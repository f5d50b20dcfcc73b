//! Follows a job's lines from a byte offset until its result.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use muster_core::ids::JobId;
use muster_core::wire::node::{Failure, FailureCode, Line};

use super::lock;
use super::spool::Spool;
use crate::failure::{fatal, io, retryable};

/// Interval between two reads of the file. New lines often follow each other at once, so the first
/// interval is short and grows to 100 ms.
const FIRST_POLL: Duration = Duration::from_millis(2);
const LAST_POLL: Duration = Duration::from_millis(100);
/// Longest line, in bytes; results with gate evidence are the longest.
const LINE_MAX: usize = 64 << 20;

/// Prints whole lines as they are written and returns after the result line. The next offset is
/// `offset` plus the bytes printed.
///
/// # Errors
/// `no_job`; `job_died` when the job's process ended without a result; `job_restarted` when another
/// attempt began with a new lines file; `offset_past_end`; `io` when the reader of the output is
/// gone.
pub fn attach(job: JobId, offset: u64, mut out: impl Write) -> Result<(), Failure> {
    let spool = Spool::of(job);
    let file = File::open(spool.lines()).map_err(|error| {
        fatal(
            FailureCode::NoJob,
            format!("job {job} has no lines file on this node: {error}"),
        )
    })?;
    let inode = file.metadata().map_err(io("the job's lines"))?.ino();
    let mut reader = BufReader::new(file);
    let length = reader
        .get_ref()
        .metadata()
        .map_err(io("the job's lines"))?
        .len();
    if offset > length {
        return Err(fatal(
            FailureCode::OffsetPastEnd,
            format!(
                "offset {offset} is past the end: the lines of job {job} are {length} bytes long"
            ),
        ));
    }
    reader
        .seek(SeekFrom::Start(offset))
        .map_err(io("the job's lines"))?;
    let mut line = Vec::new();
    let mut was_dead = false;
    let mut poll = FIRST_POLL;
    loop {
        let count = reader
            .read_until(b'\n', &mut line)
            .map_err(io("the job's lines"))?;
        if line.ends_with(b"\n") {
            out.write_all(&line)
                .and_then(|()| out.flush())
                .map_err(io("writing a line"))?;
            if matches!(serde_json::from_slice(&line), Ok(Line::Result { .. })) {
                return Ok(());
            }
            line.clear();
            poll = FIRST_POLL;
            continue;
        }
        if count > 0 && line.len() < LINE_MAX {
            continue;
        }
        if std::fs::metadata(spool.lines()).is_ok_and(|now| now.ino() != inode) {
            return Err(retryable(
                FailureCode::JobRestarted,
                format!("another attempt of job {job} started: attach again from offset 0"),
            ));
        }
        // The last lines may be written between the read and the end of the process. The process
        // must be seen dead before the last read.
        if was_dead {
            return Err(retryable(
                FailureCode::JobDied,
                format!("the process of job {job} ended without a result: run the job again"),
            ));
        }
        was_dead = !matches!(lock::alive(), Ok(Some(alive)) if alive == job);
        if !was_dead {
            std::thread::sleep(poll);
            poll = (poll * 2).min(LAST_POLL);
        }
    }
}
