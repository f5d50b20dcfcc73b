//! Host keys reported by live images, kept on disk until long after the boot. A live image reports
//! only once, and a crash of the agent after the report must not cost the node another boot.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_core::wire::node::LiveReport;

use crate::private;

/// Retention time of a report. No boot lasts this long, and older files are deleted at startup.
const KEEP: Duration = Duration::from_hours(48);

/// A directory with a small file per nonce.
#[derive(Clone, Debug)]
pub struct Reports {
    dir: PathBuf,
}

impl Reports {
    /// Opens the directory and deletes outdated reports.
    ///
    /// # Errors
    /// When the directory cannot be created or read.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        let dir = data_dir.join("reports");
        private::create_dir(&dir)?;
        for entry in std::fs::read_dir(&dir)? {
            let entry = entry?;
            if entry
                .metadata()?
                .modified()?
                .elapsed()
                .is_ok_and(|age| age > KEEP)
            {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(Self { dir })
    }

    /// Returns the report for a nonce, if present.
    pub fn find(&self, nonce: &str) -> Option<LiveReport> {
        let report: LiveReport =
            serde_json::from_slice(&std::fs::read(self.path(nonce)?).ok()?).ok()?;
        report.nonce.eq_ignore_ascii_case(nonce).then_some(report)
    }

    /// Saves a report on disk before returning.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, report: &LiveReport) -> io::Result<()> {
        let path = self
            .path(&report.nonce)
            .ok_or_else(|| io::Error::other("the nonce is not 32 hex digits"))?;
        let draft = path.with_extension("new");
        let mut file = private::create_file(&draft)?;
        file.write_all(&serde_json::to_vec(report)?)?;
        file.sync_all()?;
        std::fs::rename(&draft, path)?;
        std::fs::File::open(&self.dir)?.sync_all()
    }

    fn path(&self, nonce: &str) -> Option<PathBuf> {
        let hex = nonce.len() == 32 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit());
        hex.then(|| self.dir.join(nonce.to_ascii_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_outlives_the_process_and_a_nonce_is_no_path() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = LiveReport {
            protocol: 1,
            nonce: "00112233445566778899AABBCCDDEEFF".into(),
            mac: "52:54:00:00:00:01".parse().unwrap(),
            host_key: "ssh-ed25519 AAAA".into(),
        };
        Reports::open(dir.path()).unwrap().save(&report).unwrap();
        let reports = Reports::open(dir.path()).unwrap();
        assert_eq!(
            reports.find(&report.nonce.to_lowercase()),
            Some(report.clone())
        );
        assert_eq!(reports.find("00112233445566778899aabbccddee00"), None);
        report.nonce = "../../../../../etc/passwd0000000".into();
        assert!(reports.save(&report).is_err());
    }
}
