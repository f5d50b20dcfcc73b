//! Progress of apt and dpkg, measured from outside while the program runs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::job::JobContext;

/// Interval of the measurements.
const EVERY: Duration = Duration::from_secs(2);

/// Most bytes of dpkg's log per measurement. The next measurement reads the rest.
const LOG_MAX: u64 = 4 << 20;

/// A program's work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort<'a> {
    pub(super) message: &'a str,
    /// The size of the work, in `unit`s.
    pub(super) total: u64,
    pub(super) unit: &'a str,
}

impl Effort<'_> {
    /// Runs a program, and reports the growth of the finished part as read by `measure`.
    pub(super) fn follow<T>(
        self,
        cx: &JobContext,
        measure: impl FnMut() -> u64 + Send,
        run: impl FnOnce() -> T,
    ) -> T {
        let report = |done: u64| {
            let (done, total) = (Some(done.min(self.total)), Some(self.total));
            cx.progress(self.message, done, total, Some(self.unit));
        };
        report(0);
        measure_beside(EVERY, measure, report, run)
    }
}

/// Runs work, and measures in a thread beside the work. Each growth is reported.
fn measure_beside<T>(
    every: Duration,
    mut measure: impl FnMut() -> u64 + Send,
    report: impl Fn(u64) + Send,
    run: impl FnOnce() -> T,
) -> T {
    let (running, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut last = 0;
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let done = measure();
                if done > last {
                    report(done);
                    last = done;
                }
            }
        });
        // Dropped after the work, also after a panic.
        let _running = running;
        run()
    })
}

/// Returns the bytes of the files directly in the folders.
pub(super) fn count_bytes(folders: &[PathBuf]) -> u64 {
    let entries = folders.iter().filter_map(|folder| folder.read_dir().ok());
    let metadata = entries.flatten().flatten().map(|entry| entry.metadata());
    let files = metadata.flatten().filter(|found| found.is_file());
    files.map(|found| found.len()).sum()
}

/// dpkg's log of a transaction. The steps of an incoming package are `unpacked` and `installed`. The
/// step of a removed package is `not-installed`.
#[derive(Debug)]
pub(super) struct DpkgLog {
    path: PathBuf,
    /// The bytes read so far.
    read: u64,
    incoming: BTreeSet<String>,
    removed: BTreeSet<String>,
    /// The finished steps: package and state.
    finished: BTreeSet<(String, String)>,
}

impl DpkgLog {
    /// Starts at the end of the log.
    pub(super) fn open(path: &Path, incoming: BTreeSet<String>, removed: BTreeSet<String>) -> Self {
        Self {
            read: path.metadata().map_or(0, |found| found.len()),
            path: path.to_owned(),
            incoming,
            removed,
            finished: BTreeSet::new(),
        }
    }

    /// Returns the number of steps.
    pub(super) fn total(&self) -> u64 {
        let steps = 2 * self.incoming.len() + self.removed.len();
        u64::try_from(steps).unwrap_or(u64::MAX)
    }

    /// Reads the new lines. Returns the number of finished steps.
    pub(super) fn count(&mut self) -> u64 {
        // Without the log the number stays.
        for line in self.read_lines().unwrap_or_default().lines() {
            self.add(line);
        }
        u64::try_from(self.finished.len()).unwrap_or(u64::MAX)
    }

    /// Reads the complete new lines.
    fn read_lines(&mut self) -> std::io::Result<String> {
        let mut log = File::open(&self.path)?;
        if log.metadata()?.len() < self.read {
            // A new log after a rotation.
            self.read = 0;
        }
        log.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        log.take(LOG_MAX).read_to_end(&mut bytes)?;
        let complete = bytes.iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(complete.map_or(0, |end| end + 1));
        self.read += u64::try_from(bytes.len()).unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Adds the step of a line such as `2026-11-30 10:00:00 status installed jq:amd64 1.6-2.1`.
    fn add(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, "status", state, package, ..] = words.as_slice() else {
            return;
        };
        let name = package.split(':').next().unwrap_or_default();
        let packages = match *state {
            "unpacked" | "installed" => &self.incoming,
            "not-installed" => &self.removed,
            _ => return,
        };
        if packages.contains(name) {
            let step = (name.to_owned(), (*state).to_owned());
            self.finished.insert(step);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn growth_is_reported_while_the_work_runs() {
        let (done, (sender, reports)) = (AtomicU64::new(0), mpsc::channel());
        let mut received = Vec::new();
        let result = measure_beside(
            Duration::from_millis(1),
            || done.load(Ordering::SeqCst),
            move |part| sender.send(part).expect("a receiver"),
            || {
                for part in [3, 5] {
                    done.store(part, Ordering::SeqCst);
                    let report = reports.recv_timeout(Duration::from_secs(60));
                    received.push(report.expect("a report"));
                }
                "the result"
            },
        );
        assert_eq!(result, "the result");
        assert_eq!(received, [3, 5]);
        assert!(reports.try_recv().is_err(), "one report for each growth");
    }

    #[test]
    fn steps_of_the_transaction_are_counted_from_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dpkg.log");
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        std::fs::write(&path, "2026-11-30 09:00:00 status installed jq:amd64 1.5\n").unwrap();
        let mut log = DpkgLog::open(&path, names(&["jq", "libjq1"]), names(&["mawk"]));
        assert_eq!((log.count(), log.total()), (0, 5), "lines of before");

        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        let mut write = |text: &str| file.write_all(text.as_bytes()).unwrap();
        write("2026-11-30 10:00:00 startup archives unpack\n");
        write("2026-11-30 10:00:01 install libjq1:amd64 <none> 1.6-2.1\n");
        write("2026-11-30 10:00:01 status half-installed libjq1:amd64 1.6-2.1\n");
        write("2026-11-30 10:00:01 status unpacked libjq1:amd64 1.6-2.1\n");
        write("2026-11-30 10:00:02 status unpacked man-db:amd64 2.11\n");
        write("2026-11-30 10:00:02 status unpac");
        assert_eq!(log.count(), 1);
        write("ked jq:amd64 1.6-2.1\n");
        assert_eq!(log.count(), 2);
        write("2026-11-30 10:00:03 status unpacked jq:amd64 1.6-2.1\n");
        write("2026-11-30 10:00:03 status installed jq:amd64 1.6-2.1\n");
        write("2026-11-30 10:00:03 status not-installed mawk:amd64 <none>\n");
        assert_eq!(log.count(), 4);
        write("2026-11-30 10:00:03 status not-installed jq:amd64 <none>\n");
        assert_eq!(log.count(), 4, "a package of another list");

        std::fs::write(
            &path,
            "2026-11-30 10:00:04 status installed libjq1:amd64 1\n",
        )
        .unwrap();
        assert_eq!(log.count(), 5, "a new log after a rotation");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(log.count(), 5, "no log");
    }

    #[test]
    fn bytes_of_files_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let partial = folder.path().join("partial");
        std::fs::create_dir(&partial).unwrap();
        std::fs::write(folder.path().join("a.deb"), [0; 7]).unwrap();
        std::fs::write(partial.join("b.deb"), [0; 5]).unwrap();
        let missing = folder.path().join("missing");
        assert_eq!(
            count_bytes(&[folder.path().to_owned(), partial, missing]),
            12
        );
    }
}
