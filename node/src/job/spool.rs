//! The job's folders: `/var/lib/muster/jobs/<job>/`, and `/run/muster/jobs/<job>/` for files that
//! may hold secrets and must not survive a power loss.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use muster_core::ids::JobId;
use muster_core::wire::node::{Failure, FailureCode, Line, Plan, WorkResult};
use serde::{Deserialize, Serialize};

use crate::failure::{fatal, io};
use crate::files;
use crate::paths;

/// Longest plan, in bytes: a converge plan with its files.
pub const PLAN_MAX: u64 = 64 << 20;
/// Longest lines file read as a whole, in bytes; [`super::JobContext`] stops writing well before.
const LINES_MAX: u64 = 256 << 20;
/// Number of spools kept, newest first.
const KEEP: usize = 50;

/// Paths of one job's files.
#[derive(Clone, Debug)]
pub struct Spool {
    pub job: JobId,
    folder: PathBuf,
    secret_folder: PathBuf,
}

/// The process working on the job; written by the process itself after taking the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    pub pid: u32,
    /// Attempt under which the process was started.
    pub attempt: i32,
}

impl Spool {
    /// The spool of a job; the folders may not exist yet.
    pub fn of(job: JobId) -> Self {
        let name = job.to_string();
        Self {
            job,
            folder: paths::at("/var/lib/muster/jobs").join(&name),
            secret_folder: paths::at("/run/muster/jobs").join(&name),
        }
    }

    pub fn exists(&self) -> bool {
        self.folder.is_dir()
    }

    pub fn lines(&self) -> PathBuf {
        self.folder.join("lines")
    }

    pub fn answer(&self) -> PathBuf {
        self.folder.join("answer.json")
    }

    /// The file whose presence cancels the job.
    pub fn cancel(&self) -> PathBuf {
        self.folder.join("cancel")
    }

    pub fn plan(&self) -> PathBuf {
        self.secret_folder.join("plan.json")
    }

    fn worker_path(&self) -> PathBuf {
        self.folder.join("pid")
    }

    fn attempt_path(&self) -> PathBuf {
        self.folder.join("attempt")
    }

    /// The newest attempt that requested this job: a running process uses the number in the next
    /// challenge.
    pub fn attempt(&self) -> Option<i32> {
        files::read_json(&self.attempt_path(), 64).ok().flatten()
    }

    /// Records the newest attempt.
    ///
    /// # Errors
    /// `io`.
    pub fn set_attempt(&self, attempt: i32) -> Result<(), Failure> {
        files::write_json(&self.attempt_path(), 0o600, &attempt)
    }

    pub fn worker(&self) -> Option<Worker> {
        files::read_json(&self.worker_path(), 1024).ok().flatten()
    }

    /// Records this process as the job's worker.
    ///
    /// # Errors
    /// `io`.
    pub fn set_worker(&self, attempt: i32) -> Result<(), Failure> {
        files::write_json(
            &self.worker_path(),
            0o600,
            &Worker {
                pid: std::process::id(),
                attempt,
            },
        )
    }

    /// Prepares the folders for a new process: writes the plan, moves the lines of a former process
    /// aside, removes its answer and cancellation.
    ///
    /// # Errors
    /// `io`.
    pub fn prepare(&self, plan: &Plan) -> Result<(), Failure> {
        for folder in [&self.folder, &self.secret_folder] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(io(folder.display()))?;
        }
        for stale in [self.answer(), self.cancel(), self.worker_path()] {
            remove(&stale)?;
        }
        if self.lines().exists() {
            let kept = self.folder.join("lines.old");
            std::fs::rename(self.lines(), &kept).map_err(io(kept.display()))?;
        }
        File::create(self.lines()).map_err(io(self.lines().display()))?;
        self.set_attempt(plan.attempt)?;
        files::write_json(&self.plan(), 0o600, plan)
    }

    /// The lines file, to append to.
    ///
    /// # Errors
    /// `io`.
    pub fn append(&self) -> Result<File, Failure> {
        OpenOptions::new()
            .append(true)
            .mode(0o600)
            .open(self.lines())
            .map_err(io(self.lines().display()))
    }

    /// Removes the folder that may hold secrets.
    pub fn forget_plan(&self) {
        let _ = std::fs::remove_dir_all(&self.secret_folder);
    }

    /// Returns the job's result from the last line of the spool; `None` while the job has no
    /// result.
    pub fn result(&self) -> Option<WorkResult> {
        let bytes = files::read_capped(&self.lines(), LINES_MAX).ok()?;
        let last = bytes
            .strip_suffix(b"\n")?
            .rsplit(|&byte| byte == b'\n')
            .next()?;
        match serde_json::from_slice(last).ok()? {
            Line::Result { result, .. } => Some(*result),
            Line::Progress(_) | Line::Log { .. } | Line::Challenge(_) => None,
        }
    }
}

/// Removes all but the newest `KEEP` spools, and the plans of dead processes. Files of the job
/// `alive` stay.
pub fn prune(alive: Option<JobId>) {
    let keep = |path: &Path| alive.is_some_and(|job| path.ends_with(job.to_string()));
    for (_, plan) in folders("/run/muster/jobs")
        .into_iter()
        .filter(|(_, path)| !keep(path))
    {
        let _ = std::fs::remove_dir_all(plan);
    }
    let mut spools = folders("/var/lib/muster/jobs");
    spools.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
    for (_, spool) in spools
        .into_iter()
        .skip(KEEP)
        .filter(|(_, path)| !keep(path))
    {
        let _ = std::fs::remove_dir_all(spool);
    }
}

fn folders(parent: &str) -> Vec<(SystemTime, PathBuf)> {
    let entries = std::fs::read_dir(paths::at(parent))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect()
}

fn remove(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io(path.display())(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Reads a job id from the command line.
///
/// # Errors
/// `usage`.
pub fn parse_job(text: &str) -> Result<JobId, Failure> {
    text.parse().map_err(|error| {
        fatal(
            FailureCode::Usage,
            format!("{text:?} is not a job id: {error}"),
        )
    })
}
