//! The system to converge: the running system, or a tree unpacked by a test and entered by chroot.

use std::path::PathBuf;
use std::time::Duration;

use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::{io, retryable};
use crate::job::JobContext;
use crate::tool::{self, Call, Finished, ToolError};
use crate::{files, paths};

/// Longest /etc/passwd or /etc/group, in bytes: room for every local account of a large site.
const ACCOUNTS_MAX: u64 = 16 << 20;
/// Longest chain of links, as in the kernel.
const LINKS_MAX: usize = 40;

/// The root of a system, and the time to wait for its locks.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    root: PathBuf,
    /// Longest wait for another package manager's lock before the job fails.
    pub(crate) lock_wait: Duration,
}

impl Machine {
    /// The system that muster-node runs on; tests move the root by `MUSTER_ROOT`.
    pub(crate) fn host() -> Self {
        Self::at(paths::at("/"))
    }

    /// A system below a folder.
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            lock_wait: Duration::from_secs(300),
        }
    }

    /// Maps an absolute path of the system to a path of this process.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Follows all links of a path. The result is a path of the machine without links; a target
    /// never leaves the machine's root. `None` for a missing file, a dangling link or a loop.
    pub(crate) fn resolve(&self, path: &str) -> Option<String> {
        let mut left: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut done: Vec<String> = Vec::new();
        let mut followed = 0;
        while let Some(part) = left.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    done.pop();
                    continue;
                }
                _ => done.push(part),
            }
            let here = self.path(&done.join("/"));
            if !here.symlink_metadata().ok()?.is_symlink() {
                continue;
            }
            followed += 1;
            if followed > LINKS_MAX {
                return None;
            }
            let target = std::fs::read_link(&here).ok()?.into_os_string();
            let target = target.into_string().ok()?;
            done.pop();
            if target.starts_with('/') {
                done.clear();
            }
            left.extend(target.split('/').rev().map(str::to_owned));
        }
        Some(format!("/{}", done.join("/")))
    }

    /// Reads a file of the system; `None` when the file does not exist.
    ///
    /// # Errors
    /// `io`, also when the file is longer than `max` bytes.
    pub(crate) fn read(&self, path: &str, max: u64) -> Result<Option<Vec<u8>>, Failure> {
        match files::read_capped(&self.path(path), max) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io(path)(error)),
        }
    }

    /// Runs a program in the system, by chroot when the root is a folder.
    ///
    /// # Errors
    /// As [`tool::run`].
    pub(crate) fn run(&self, cx: &JobContext, call: &Call<'_>) -> Result<Finished, ToolError> {
        if self.root.as_os_str() == "/" {
            return tool::run(cx, call);
        }
        let root = self.root.to_string_lossy();
        let argv: Vec<&str> = ["chroot", &root]
            .into_iter()
            .chain(call.argv.iter().copied())
            .collect();
        tool::run(
            cx,
            &Call {
                argv: &argv,
                ..call.clone()
            },
        )
    }

    /// Runs a program and returns its stdout. The program must exit 0 within `timeout`.
    ///
    /// # Errors
    /// `code` with the last 600 bytes of output when the program exits otherwise.
    pub(crate) fn output(
        &self,
        cx: &JobContext,
        code: FailureCode,
        argv: &[&str],
        timeout: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let done = self.run(
            cx,
            &Call {
                argv,
                timeout: Some(timeout),
                ..Call::default()
            },
        )?;
        match done.status.success() {
            true => Ok(done.stdout),
            false => {
                let said = tool::tail(&[done.stdout, done.stderr].concat(), 600);
                Err(retryable(
                    code,
                    format!("`{}` ended with {}: {said}", argv.join(" "), done.status),
                ))
            }
        }
    }

    /// Returns the id of a user (`/etc/passwd`) or group (`/etc/group`) by name.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn account_id(&self, database: &str, name: &str) -> Result<Option<u32>, Failure> {
        self.account(database, |fields| fields.first() == Some(&name))
            .map(|found| found.map(|(_, id)| id))
    }

    /// Returns the name of an id, or the number as text when no account has the id.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn account_name(&self, database: &str, id: u32) -> Result<String, Failure> {
        let number = id.to_string();
        let found = self.account(database, |fields| fields.get(2) == Some(&number.as_str()))?;
        Ok(found.map_or(number, |(name, _)| name))
    }

    fn account(
        &self,
        database: &str,
        fits: impl Fn(&[&str]) -> bool,
    ) -> Result<Option<(String, u32)>, Failure> {
        let bytes = self.read(database, ACCOUNTS_MAX)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = lines.into_iter().find(|fields| fits(fields));
        Ok(found
            .and_then(|fields| Some(((*fields.first()?).to_owned(), fields.get(2)?.parse().ok()?))))
    }
}
