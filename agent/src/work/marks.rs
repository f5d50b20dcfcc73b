//! The latest event stored by this agent for the server. The agent sends the event id with every
//! call. A database that lacks the event was restored from an older backup. The server then reports
//! the loss instead of acting on outdated data.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum length of an event id.
const LONGEST: usize = 64;

/// The stored event, in memory and on disk.
#[derive(Debug, Default)]
pub struct Marks {
    /// Path of the file. `None` keeps the event only in memory.
    path: Option<PathBuf>,
    latest: Mutex<Option<String>>,
}

impl Marks {
    /// Reads the event stored by an earlier process.
    ///
    /// # Errors
    /// When the file exists and cannot be read.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(data_dir)?;
        let path = data_dir.join("latest-event");
        let latest = match std::fs::read_to_string(&path) {
            Ok(text) => Some(text.trim().to_owned()).filter(|mark| is_mark(mark)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self {
            path: Some(path),
            latest: Mutex::new(latest),
        })
    }

    /// Returns the event id sent with each call.
    pub fn latest(&self) -> Option<String> {
        self.lock().clone()
    }

    /// Stores an event in memory and on disk before returning. A write error is only logged,
    /// because the event in memory is sufficient for this process.
    pub fn keep(&self, mark: &str) {
        if !is_mark(mark) {
            return tracing::warn!("event id of the server is malformed and was ignored");
        }
        let mut latest = self.lock();
        *latest = Some(mark.to_owned());
        if let Some(path) = &self.path
            && let Err(error) = write(path, mark)
        {
            tracing::warn!(%error, path = %path.display(), "latest event not saved on disk; a restored database may not be detected after a restart; check the disk");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_mark(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn write(path: &Path, mark: &str) -> io::Result<()> {
    use std::io::Write as _;
    let draft = path.with_extension("new");
    let mut file = std::fs::File::create(&draft)?;
    file.write_all(mark.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_remembers_and_nonsense_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let marks = Marks::open(dir.path()).unwrap();
        assert_eq!(marks.latest(), None);
        marks.keep("019a0b3c-0000-7000-8000-000000000001");
        marks.keep("../etc\r\nx: y");
        assert_eq!(
            Marks::open(dir.path()).unwrap().latest().as_deref(),
            Some("019a0b3c-0000-7000-8000-000000000001")
        );
    }
}
