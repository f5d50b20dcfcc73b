//! Directories and files of the agent, closed for other users of the machine.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

const DIR: u32 = 0o700;
const FILE: u32 = 0o600;
/// Key and certificate of the agent. The mode stays as found: an agent refuses an open key.
const IDENTITY: &str = "identity.json";
/// Further files of an agent. Earlier versions wrote the files with the mode of the umask.
const FILES: [&str; 3] = ["site.json", "latest-event", "latest-event-sealed"];
const REPORTS: &str = "reports";

/// Creates a directory for the user of the agent alone. An existing directory keeps its mode.
///
/// # Errors
/// When the directory cannot be created.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent()
        && !parent.exists()
    {
        fs::create_dir_all(parent)?;
    }
    DirBuilder::new().recursive(true).mode(DIR).create(dir)
}

/// Creates or empties a file for the user of the agent alone.
///
/// # Errors
/// When the file cannot be opened or its mode cannot be set.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(FILE);
    let file = options.open(path)?;
    // A draft of an earlier version keeps its mode without this call.
    file.set_permissions(Permissions::from_mode(FILE))?;
    Ok(file)
}

/// Closes the data directory, the reports and the files of an earlier version for other users. A
/// directory with other files alone keeps its mode, because other programs may use the directory. A
/// failure is a warning, so that an agent on a directory of another user starts.
pub(crate) fn close(data_dir: &Path) {
    let files = FILES.map(|name| data_dir.join(name));
    let reports = data_dir.join(REPORTS);
    let is_empty = fs::read_dir(data_dir).is_ok_and(|mut entries| entries.next().is_none());
    let is_own = data_dir.join(IDENTITY).is_file() || files.iter().any(|file| file.is_file());
    if !is_empty && !is_own {
        return;
    }
    let kept = fs::read_dir(&reports).into_iter().flatten().flatten();
    let kept = kept.map(|entry| entry.path());
    for file in files.into_iter().chain(kept).filter(|path| path.is_file()) {
        set_mode(&file, FILE);
    }
    for dir in [reports.as_path(), data_dir] {
        if dir.is_dir() {
            set_mode(dir, DIR);
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    let changed = fs::metadata(path).and_then(|found| {
        if found.permissions().mode() & 0o7777 == mode {
            return Ok(());
        }
        fs::set_permissions(path, Permissions::from_mode(mode))
    });
    if let Err(error) = changed {
        let path = path.display();
        tracing::warn!(%path, %error, "mode of the agent's file not changed; other users of this machine may read the file; set the mode to {mode:o}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn write(path: &Path, mode: u32) {
        fs::write(path, "{}").unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn new_directories_and_files_are_for_their_owner_alone() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("lib/agent");
        create_dir(&dir).unwrap();
        assert_eq!(mode_of(&dir), DIR);
        create_dir(&dir).unwrap();
        let draft = dir.join("draft");
        create_file(&draft).unwrap();
        assert_eq!(mode_of(&draft), FILE);
        write(&draft, 0o644);
        create_file(&draft).unwrap();
        assert_eq!((mode_of(&draft), fs::read(&draft).unwrap()), (FILE, vec![]));
    }

    #[test]
    fn files_of_an_earlier_version_are_closed_and_other_directories_are_left() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("agent");
        let reports = dir.join("reports");
        fs::create_dir_all(&reports).unwrap();
        for open in [&dir, &reports] {
            fs::set_permissions(open, Permissions::from_mode(0o755)).unwrap();
        }
        let files = [dir.join("site.json"), reports.join("0011")];
        for file in &files {
            write(file, 0o644);
        }
        close(&dir);
        assert_eq!([&dir, &reports].map(|dir| mode_of(dir)), [DIR, DIR]);
        assert_eq!(files.map(|file| mode_of(&file)), [FILE, FILE]);

        let other = root.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o755)).unwrap();
        write(&other.join("notes"), 0o644);
        close(&other);
        assert_eq!(mode_of(&other), 0o755);
        assert_eq!(mode_of(&other.join("notes")), 0o644);
        fs::remove_file(other.join("notes")).unwrap();
        close(&other);
        assert_eq!(mode_of(&other), DIR, "an empty directory is closed");
    }
}
