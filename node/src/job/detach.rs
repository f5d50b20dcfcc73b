//! Starts a process that outlives muster-node and its SSH connection. Under systemd the process
//! also leaves the session, because systemd would end the process with the session.

use std::path::Path;
use std::process::{Command, Stdio};

use muster_core::ids::JobId;
use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::{io, retryable};
use crate::{paths, tool};

/// Starts `muster-node exec-job JOB`, detached.
///
/// # Errors
/// `start_failed` when systemd refuses, `io`.
pub fn start(job: JobId) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(io("finding muster-node's executable"))?;
    // A test's private root must not start units of the host's systemd.
    let private = std::env::var_os("MUSTER_ROOT").is_some();
    match !private && Path::new("/run/systemd/system").is_dir() {
        true => by_systemd(job, &program),
        false => by_session(job, &program),
    }
}

fn by_systemd(job: JobId, program: &Path) -> Result<(), Failure> {
    let started = Command::new("systemd-run")
        .args(["--collect", "--quiet", "--no-block"])
        // muster-node makes a cgroup below the unit for each tool of a gate. systemd enables
        // delegated controllers for the units beside as well; pids and memory are on by default.
        .arg("--property=Delegate=pids memory")
        .arg(format!("--unit=muster-job-{job}"))
        .arg("--")
        .arg(program)
        .args(["exec-job", &job.to_string()])
        .env("PATH", tool::search_path())
        .stdin(Stdio::null())
        .output()
        .map_err(io("systemd-run"))?;
    match started.status.success() {
        true => Ok(()),
        false => Err(retryable(
            FailureCode::StartFailed,
            format!("systemd-run failed: {}", tool::tail(&started.stderr, 600)),
        )),
    }
}

/// Starts the process as a child. The child leaves the session by itself (see [`crate::exec`]);
/// setsid succeeds because the child leads no group.
fn by_session(job: JobId, program: &Path) -> Result<(), Failure> {
    Command::new(program)
        .args(["exec-job", &job.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir(paths::at("/"))
        .spawn()
        .map(drop)
        .map_err(io("starting the job's process"))
}
