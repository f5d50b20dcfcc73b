//! One job at a time. The lock is also the proof of life: the kernel drops it with the process that held it, however that ended.

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
/// How long a lock is asked for: others only hold it to look.
const PATIENCE: Duration = Duration::from_secs(10);

/// Held by a job's process for its whole life, or by `run` while it admits one.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "dropping it unlocks")] Flock<File>);

/// The job whose process is alive.
///
/// # Errors
/// `io`.
pub fn alive() -> Result<Option<JobId>, Failure> {
    match Flock::lock(open(PATH)?, FlockArg::LockSharedNonblock) {
        Ok(_) => Ok(None),
        Err((file, Errno::EWOULDBLOCK)) => {
            let mut text = String::new();
            file.take(64).read_to_string(&mut text).map_err(io(PATH))?;
            // Between locking and writing its name, a process is alive without one: the next look tells.
            text.trim()
                .parse()
                .map(Some)
                .map_err(|_| retryable(FailureCode::Busy, "a job is just starting"))
        }
        Err((_, errno)) => Err(retryable(FailureCode::Io, format!("{PATH}: {errno}"))),
    }
}

/// Takes the lock for `job` and writes its name into it.
///
/// # Errors
/// `busy` when another job keeps it.
pub fn take(job: JobId) -> Result<Held, Failure> {
    let mut lock = exclusive(PATH)?;
    let write = |file: &mut File| {
        file.rewind()?;
        file.write_all(job.to_string().as_bytes())
    };
    write(&mut lock).map_err(io(PATH))?;
    Ok(Held(lock))
}

/// Lets one `run` at a time decide.
///
/// # Errors
/// `busy` when another one decides for too long.
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

/// Opens without truncating: the name in it is read by others. All job ids have one length, so writing replaces.
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
