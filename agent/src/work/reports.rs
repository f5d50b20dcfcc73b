//! Host keys that live images reported, kept on disk until their boots are long over: the report comes once, and an agent that dies right
//! after it must not cost the node another boot.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_core::wire::node::LiveReport;

/// No boot lasts this long; what is older is swept at the start.
const KEEP: Duration = Duration::from_hours(48);

/// A directory with one small file per nonce.
#[derive(Clone, Debug)]
pub struct Reports {
    dir: PathBuf,
}

impl Reports {
    /// Opens the directory and removes what no boot can still ask for.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        let dir = data_dir.join("reports");
        std::fs::create_dir_all(&dir)?;
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

    /// The report of a nonce, if it came.
    pub fn find(&self, nonce: &str) -> Option<LiveReport> {
        let report: LiveReport =
            serde_json::from_slice(&std::fs::read(self.path(nonce)?).ok()?).ok()?;
        report.nonce.eq_ignore_ascii_case(nonce).then_some(report)
    }

    /// Keeps a report; on disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, report: &LiveReport) -> io::Result<()> {
        let path = self
            .path(&report.nonce)
            .ok_or_else(|| io::Error::other("the nonce is not 32 hex digits"))?;
        let draft = path.with_extension("new");
        let mut file = std::fs::File::create(&draft)?;
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
