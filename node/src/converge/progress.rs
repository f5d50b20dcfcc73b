//! Progress of apt and dpkg, measured from outside while the program runs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::job::JobContext;

/// Interval of the measurements. The agent sends every growth to the server.
const EVERY: Duration = Duration::from_secs(5);

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
        mut measure: impl FnMut() -> u64 + Send,
        run: impl FnOnce() -> T,
    ) -> T {
        let (total, unit) = (Some(self.total), Some(self.unit));
        let report = |done: u64| cx.progress(self.message, Some(done), total, unit);
        report(0);
        measure_beside(EVERY, || measure().min(self.total), report, run)
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

/// Returns the bytes of the packages' archives in the folders. apt names an archive
/// `NAME_VERSION_ARCH.deb`.
pub(super) fn count_bytes(folders: &[PathBuf], packages: &BTreeSet<&str>) -> u64 {
    let entries = folders.iter().filter_map(|folder| folder.read_dir().ok());
    let entries = entries.flatten().flatten().filter(|entry| {
        let name = entry.file_name();
        let (package, _) = name
            .to_str()
            .and_then(|name| name.split_once('_'))
            .unwrap_or_default();
        packages.contains(package)
    });
    let metadata = entries.filter_map(|entry| entry.metadata().ok());
    metadata.map(|found| found.len()).sum()
}

/// dpkg's log of a transaction. The steps of an incoming package are `unpacked` and `installed`. The
/// step of a removed package is `not-installed`. The last step is the end of the triggers, which the
/// log does not show.
#[derive(Debug)]
pub(super) struct DpkgLog {
    path: PathBuf,
    /// The log as far as dpkg has one. A running dpkg writes into a rotated log.
    file: Option<File>,
    /// The start of an incomplete line.
    rest: Vec<u8>,
    incoming: BTreeSet<String>,
    removed: BTreeSet<String>,
    /// The finished steps: package and state.
    finished: BTreeSet<(String, String)>,
}

impl DpkgLog {
    /// Starts at the end of the log.
    pub(super) fn open(path: &Path, incoming: BTreeSet<String>, removed: BTreeSet<String>) -> Self {
        let end = |mut log: File| log.seek(SeekFrom::End(0)).map(|_| log);
        Self {
            file: File::open(path).and_then(end).ok(),
            rest: Vec::new(),
            path: path.to_owned(),
            incoming,
            removed,
            finished: BTreeSet::new(),
        }
    }

    /// Returns the number of steps.
    pub(super) fn total(&self) -> u64 {
        let steps = 2 * self.incoming.len() + self.removed.len() + 1;
        u64::try_from(steps).unwrap_or(u64::MAX)
    }

    /// Reads the new lines. Returns the number of finished steps.
    pub(super) fn count(&mut self) -> u64 {
        // Without the log the number stays.
        _ = self.read();
        u64::try_from(self.finished.len()).unwrap_or(u64::MAX)
    }

    /// Reads the open log to the end, and then a new log after a rotation.
    fn read(&mut self) -> std::io::Result<()> {
        if let Some(mut log) = self.file.take() {
            self.read_lines(&mut log)?;
            let own = log.metadata()?.ino();
            let is_rotated = self.path.metadata().is_ok_and(|found| found.ino() != own);
            self.file = (!is_rotated).then_some(log);
        }
        if self.file.is_none() {
            let mut log = File::open(&self.path)?;
            self.read_lines(&mut log)?;
            self.file = Some(log);
        }
        Ok(())
    }

    fn read_lines(&mut self, log: &mut File) -> std::io::Result<()> {
        if log.metadata()?.len() < log.stream_position()? {
            // The log was emptied in place.
            log.rewind()?;
        }
        log.take(LOG_MAX).read_to_end(&mut self.rest)?;
        let complete = self.rest.iter().rposition(|byte| *byte == b'\n');
        let incomplete = self.rest.split_off(complete.map_or(0, |end| end + 1));
        let lines = std::mem::replace(&mut self.rest, incomplete);
        for line in String::from_utf8_lossy(&lines).lines() {
            self.add(line);
        }
        Ok(())
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
        let mut log = DpkgLog::open(&path, names(&["jq", "libjq1", "yq"]), names(&["mawk"]));
        assert_eq!((log.count(), log.total()), (0, 8), "lines of before");

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

        // A running dpkg continues in the rotated log.
        std::fs::rename(&path, folder.path().join("dpkg.log.1")).unwrap();
        assert_eq!(log.count(), 4, "no new log yet");
        write("2026-11-30 10:00:04 status unpacked yq:amd64 4\n");
        let renew = |line: &str| std::fs::write(&path, line).unwrap();
        renew("2026-11-30 10:00:05 status installed libjq1:amd64 1.6-2.1\n");
        assert_eq!(log.count(), 6, "both logs");
        renew("2026-11-30 10:00:06 status installed yq:amd64 4\n");
        assert_eq!(log.count(), 7, "a log emptied in place");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(log.count(), 7, "no log");
    }

    #[test]
    fn bytes_of_files_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let partial = folder.path().join("partial");
        std::fs::create_dir(&partial).unwrap();
        std::fs::write(folder.path().join("a_1_all.deb"), [0; 7]).unwrap();
        std::fs::write(partial.join("b_1_all.deb"), [0; 5]).unwrap();
        std::fs::write(folder.path().join("c_1_all.deb"), [0; 3]).unwrap();
        let folders = [
            folder.path().to_owned(),
            partial,
            folder.path().join("missing"),
        ];
        assert_eq!(count_bytes(&folders, &BTreeSet::from(["a", "b"])), 12);
    }
}
