//! The lock for one job at a time. The lock also proves that a job is alive: the kernel releases
//! the lock when its process ends, for any reason.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use muster_core::ids::JobId;
use muster_core::wire::node::{Failure, FailureCode};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::failure::{io, retryable};
use crate::paths;

const PATH: &str = "/var/lib/muster/job.lock";
const ADMISSION: &str = "/var/lib/muster/run.lock";
/// Longest wait for a lock: other processes hold the lock only briefly, to read.
const PATIENCE: Duration = Duration::from_secs(10);

/// A lock held by a job's process for its whole life, or by `run` while admitting a job.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "dropping it unlocks")] Flock<File>);

/// Returns the job with a living process.
///
/// # Errors
/// `io`.
pub fn alive() -> Result<Option<JobId>, Failure> {
    match Flock::lock(open(PATH)?, FlockArg::LockSharedNonblock) {
        Ok(_) => Ok(None),
        Err((file, Errno::EWOULDBLOCK)) => {
            let mut text = String::new();
            file.take(64).read_to_string(&mut text).map_err(io(PATH))?;
            // Between locking and writing its id, a process has no id in the file: the caller looks
            // again.
            text.trim()
                .parse()
                .map(Some)
                .map_err(|_| retryable(FailureCode::Busy, "a job is starting; try again"))
        }
        Err((_, errno)) => Err(retryable(FailureCode::Io, format!("{PATH}: {errno}"))),
    }
}

/// Takes the lock for `job` and writes the job's id into the lock file.
///
/// # Errors
/// `busy` when another job still holds the lock after 10 s.
pub fn take(job: JobId) -> Result<Held, Failure> {
    let mut lock = exclusive(PATH)?;
    let write = |file: &mut File| {
        file.rewind()?;
        file.write_all(job.to_string().as_bytes())
    };
    write(&mut lock).map_err(io(PATH))?;
    Ok(Held(lock))
}

/// Takes the admission lock: one `run` decides at a time.
///
/// # Errors
/// `busy` when another `run` holds the lock for more than 10 s.
pub fn admission() -> Result<Held, Failure> {
    exclusive(ADMISSION).map(Held)
}

fn exclusive(path: &str) -> Result<Flock<File>, Failure> {
    let started = Instant::now();
    let mut file = open(path)?;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((again, Errno::EWOULDBLOCK)) if started.elapsed() < PATIENCE => file = again,
            Err((_, Errno::EWOULDBLOCK)) => {
                return Err(retryable(
                    FailureCode::Busy,
                    format!("{path} is held by another process"),
                ));
            }
            Err((_, errno)) => return Err(retryable(FailureCode::Io, format!("{path}: {errno}"))),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Opens without truncating, because other processes read the id in the file. All job ids have the
/// same length, so a write replaces the id.
fn open(path: &str) -> Result<File, Failure> {
    let path = paths::at(path);
    let open = || {
        std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
    };
    open().map_err(io(path.display()))
}
