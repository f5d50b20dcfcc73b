//! The latest event stored by this agent for the server, with the server's seal. The agent sends
//! both with every call. A database that lacks the event was restored from an older backup. The
//! server then reports the loss instead of acting on outdated data.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::private;

/// Maximum length of an event id or a seal.
const LONGEST: usize = 64;

/// An event of the server, with the server's seal over the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub event: String,
    /// `None` for an event from a server of the previous version.
    pub seal: Option<String>,
}

/// The stored event, in memory and on disk.
#[derive(Debug, Default)]
pub struct Marks {
    /// The files. `None` keeps the event only in memory.
    files: Option<Files>,
    latest: Mutex<Option<Mark>>,
}

/// The files of the stored event.
#[derive(Debug)]
struct Files {
    /// The event alone, as read by an agent of the previous version.
    event: PathBuf,
    /// The event and the seal in one file, so that a crash separates no seal from its event.
    sealed: PathBuf,
}

impl Marks {
    /// Reads the event stored by an earlier process. The sealed event is preferred.
    ///
    /// # Errors
    /// When a file exists and cannot be read.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        private::create_dir(data_dir)?;
        let files = Files {
            event: data_dir.join("latest-event"),
            sealed: data_dir.join("latest-event-sealed"),
        };
        let latest = match read(&files.sealed)?.as_deref().and_then(parse_sealed) {
            Some(mark) => Some(mark),
            None => read(&files.event)?
                .filter(|event| is_word(event))
                .map(|event| Mark { event, seal: None }),
        };
        Ok(Self {
            files: Some(files),
            latest: Mutex::new(latest),
        })
    }

    /// Returns the event sent with each call.
    pub fn latest(&self) -> Option<Mark> {
        self.lock().clone()
    }

    /// Stores an event in memory and on disk before returning. A write error is only logged,
    /// because the event in memory is sufficient for this process.
    pub fn keep(&self, event: &str, seal: Option<&str>) {
        let is_malformed = |word: &str| !is_word(word);
        if is_malformed(event) || seal.is_some_and(is_malformed) {
            return tracing::warn!("event id of the server is malformed and was ignored");
        }
        let mark = Mark {
            event: event.to_owned(),
            seal: seal.map(str::to_owned),
        };
        let mut latest = self.lock();
        if let Some(files) = &self.files
            && let Err(error) = files.write(&mark)
        {
            tracing::warn!(%error, path = %files.event.display(), "latest event not saved on disk; a restored database may not be detected after a restart; check the disk");
        }
        *latest = Some(mark);
    }

    /// Removes the event from memory and disk: the agent belongs to another installation now, which
    /// never sent the event and would refuse the agent for the event.
    ///
    /// # Errors
    /// When a file exists and cannot be removed.
    pub fn forget(&self) -> io::Result<()> {
        let mut latest = self.lock();
        if let Some(files) = &self.files {
            remove(&files.sealed)?;
            remove(&files.event)?;
        }
        *latest = None;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Mark>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn write(&self, mark: &Mark) -> io::Result<()> {
        write(&self.event, &mark.event)?;
        match &mark.seal {
            Some(seal) => write(&self.sealed, &format!("{} {seal}", mark.event)),
            None => remove(&self.sealed),
        }
    }
}

fn parse_sealed(text: &str) -> Option<Mark> {
    let (event, seal) = text.split_once(' ')?;
    (is_word(event) && is_word(seal)).then(|| Mark {
        event: event.to_owned(),
        seal: Some(seal.to_owned()),
    })
}

/// Whether a text has the form of an event id or of a seal.
fn is_word(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    std::fs::remove_file(path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    let draft = path.with_extension("new");
    let mut file = private::create_file(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = "019a0b3c-0000-7000-8000-000000000001";
    const LATER: &str = "019a0b3c-0000-7000-8000-000000000002";

    fn mark(event: &str, seal: Option<&str>) -> Option<Mark> {
        let (event, seal) = (event.to_owned(), seal.map(str::to_owned));
        Some(Mark { event, seal })
    }

    #[test]
    fn the_next_process_remembers_and_nonsense_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let seal = "ab".repeat(32);
        let marks = Marks::open(dir.path()).unwrap();
        assert_eq!(marks.latest(), None);
        marks.keep(EVENT, Some(&seal));
        marks.keep("../etc\r\nx: y", Some(&seal));
        marks.keep(LATER, Some("no seal"));
        let next = Marks::open(dir.path()).unwrap();
        assert_eq!(next.latest(), mark(EVENT, Some(&seal)));
        // An event of a server of the previous version has no seal, and takes no older seal.
        next.keep(LATER, None);
        let after = Marks::open(dir.path()).unwrap();
        assert_eq!(after.latest(), mark(LATER, None));
        let file = std::fs::read_to_string(dir.path().join("latest-event")).unwrap();
        assert_eq!(file, LATER, "read by an agent of the previous version");
    }

    #[test]
    fn a_forgotten_event_is_not_read_by_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let marks = Marks::open(dir.path()).unwrap();
        marks.keep(EVENT, Some(&"ab".repeat(32)));
        marks.forget().unwrap();
        assert_eq!(marks.latest(), None);
        assert_eq!(Marks::open(dir.path()).unwrap().latest(), None);
        marks.forget().unwrap();
    }

    #[test]
    fn the_file_of_the_previous_version_is_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("latest-event"), EVENT).unwrap();
        assert_eq!(Marks::open(dir.path()).unwrap().latest(), mark(EVENT, None));
    }
}
