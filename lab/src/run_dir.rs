//! The directory of a run: emptied before the run and used by a single run at a time. A directory
//! with foreign files is left untouched.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, bail, ensure};

/// Name of the marker file. The marker permits a run to empty the directory, and is locked while a
/// run uses the directory.
const MARK: &str = ".muster-run";

/// A directory held by this run until the value is dropped.
#[derive(Debug)]
pub(crate) struct RunDir {
    _lock: File,
}

impl RunDir {
    /// Takes a directory and empties the directory; makes the directory if missing. `clean` removes
    /// leftovers of a former run outside the directory.
    ///
    /// # Errors
    /// Fails if the directory has files but no marker of a run, or while another run uses the
    /// directory.
    pub(crate) fn take(dir: &Path, clean: impl FnOnce()) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        let mark = dir.join(MARK);
        let empty = fs::read_dir(dir)
            .with_context(|| format!("read {}", dir.display()))?
            .next()
            .is_none();
        ensure!(
            empty || mark.exists(),
            "{} is not empty, and no run left that there: name another --dir",
            dir.display()
        );
        let lock = File::options().create(true).append(true).open(&mark);
        let lock = lock.with_context(|| format!("write {}", mark.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another run uses {}: name another --dir", dir.display())
            }
            Err(TryLockError::Error(error)) => return Err(error).context("lock the directory"),
        }
        clean();
        self::empty(dir).with_context(|| format!("empty {}", dir.display()))?;
        // Opened to all users: the database runs as another user and must reach its own directory
        // inside.
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("open {}", dir.display()))?;
        Ok(Self { _lock: lock })
    }
}

fn empty(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            _ if entry.file_name() == MARK => {}
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_run_left_is_emptied_and_only_when_no_run_uses_it() {
        let dir = tempfile::tempdir().unwrap();
        let mine = dir.path().join("thesis.tex");
        fs::write(&mine, "years").unwrap();
        let refused = RunDir::take(dir.path(), || {}).unwrap_err().to_string();
        assert!(
            refused.contains("is not empty") && mine.exists(),
            "{refused}"
        );
        let of_runs = dir.path().join("runs");
        let held = RunDir::take(&of_runs, || {}).unwrap();
        fs::create_dir(of_runs.join("logs")).unwrap();
        let refused = RunDir::take(&of_runs, || {}).unwrap_err().to_string();
        assert!(
            refused.contains("another run uses") && of_runs.join("logs").exists(),
            "{refused}"
        );
        drop(held);
        RunDir::take(&of_runs, || {}).unwrap();
        assert!(!of_runs.join("logs").exists());
    }
}
