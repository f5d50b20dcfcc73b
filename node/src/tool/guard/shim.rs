//! `muster-node exec-tool CGROUP OPEN_FILES -- PROGRAM ARGUMENT…`: enters the limits of a tool and
//! becomes the tool, so the tool has its limits from the first instruction. CGROUP is `-` without a
//! cgroup. The start is reported through stdin, a pipe to muster-node: a process without a report
//! is no tool with limits.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use muster_core::wire::node::Failure;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::limits::OPEN_FILES;
use crate::failure::io as io_failure;
use crate::terminal::usage;

/// The word for a tool without a cgroup.
const NO_CGROUP: &str = "-";
/// Bytes of a report. An error of the limits or of the program has the number of the error.
const LIMITS: u8 = 1;
const PROGRAM: u8 = 2;
/// The limits are entered, and the program starts next.
const STARTED: u8 = 3;
/// Longest report, in bytes: [`STARTED`], then [`PROGRAM`] and the number of the error.
pub(super) const REPORT_MAX: u64 = 6;

/// The reason of a tool that has not started.
#[derive(Debug)]
pub(in crate::tool) enum Refusal {
    /// A limit was not accepted, or the report is not from `exec-tool`.
    Limits(io::Error),
    /// The program is missing, or not executable.
    Program(io::Error),
}

impl Refusal {
    /// Reads a report; `None` for a started tool.
    pub(super) fn parse(report: &[u8]) -> Option<Self> {
        let error = |number: &[u8]| {
            let number = i32::from_le_bytes(number.try_into().ok()?);
            Some(io::Error::from_raw_os_error(number))
        };
        let refusal = match report {
            [STARTED] => return None,
            [LIMITS, number @ ..] => error(number).map(Self::Limits),
            [STARTED, PROGRAM, number @ ..] => error(number).map(Self::Program),
            _ => None,
        };
        let unknown = || io::Error::other("muster-node did not start the tool");
        Some(refusal.unwrap_or_else(|| Self::Limits(unknown())))
    }

    fn report(&self) -> Vec<u8> {
        let (first, error) = match self {
            Self::Limits(error) => (LIMITS, error),
            Self::Program(error) => (PROGRAM, error),
        };
        let number = error.raw_os_error().unwrap_or(nix::libc::EIO);
        [&[first][..], &number.to_le_bytes()].concat()
    }
}

/// Returns the arguments of the verb for a tool.
pub(super) fn arguments(cgroup: Option<&Path>, argv: &[&str]) -> Vec<OsString> {
    let cgroup = cgroup.map_or_else(|| NO_CGROUP.into(), |folder| folder.as_os_str().to_owned());
    let files = OPEN_FILES.to_string().into();
    let own = ["exec-tool".into(), cgroup, files, "--".into()];
    own.into_iter()
        .chain(argv.iter().map(|word| OsString::from(*word)))
        .collect()
}

/// Runs the verb. Returns only after a failed start.
///
/// # Errors
/// `usage`, and `io` where muster-node does not read the report.
pub(crate) fn exec_tool(words: &[&str]) -> Result<ExitCode, Failure> {
    let [cgroup, open_files, "--", program, arguments @ ..] = words else {
        return Err(usage());
    };
    let open_files = open_files.parse().map_err(|_| usage())?;
    // Duplicated, because the tool has another stdin. The tool does not inherit the duplicate.
    let report = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(io_failure("stdin"))?;
    let mut report = File::from(report);
    let refusal = match enter(cgroup, open_files) {
        Ok(()) => {
            report.write_all(&[STARTED]).map_err(io_failure("stdin"))?;
            Refusal::Program(
                Command::new(program)
                    .args(arguments)
                    .stdin(Stdio::null())
                    .exec(),
            )
        }
        Err(error) => Refusal::Limits(error),
    };
    report
        .write_all(&refusal.report())
        .map_err(io_failure("stdin"))?;
    Ok(ExitCode::FAILURE)
}

/// Enters the cgroup, and lowers the limits of this process.
fn enter(cgroup: &str, open_files: u64) -> io::Result<()> {
    if cgroup != NO_CGROUP {
        let own = std::process::id().to_string();
        std::fs::write(Path::new(cgroup).join("cgroup.procs"), own)?;
    }
    // The kernel ends the tool before every other program when the memory of the node ends. A
    // machine that refuses the write chooses by size.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(
        Resource::RLIMIT_NOFILE,
        soft.min(open_files),
        hard.min(open_files),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_tool_stay_its_own() {
        let argv = ["fio", "--", "--name=a b"];
        let words = |cgroup: Option<&str>| arguments(cgroup.map(Path::new), &argv);
        let own = ["fio", "--", "--name=a b"];
        let files = ["65536", "--"];
        assert_eq!(
            words(None),
            [&["exec-tool", "-"][..], &files, &own].concat()
        );
        let cgroup = "/sys/fs/cgroup/a/tool-0";
        assert_eq!(
            words(Some(cgroup)),
            [&["exec-tool", cgroup][..], &files, &own].concat()
        );
    }

    #[test]
    fn a_report_is_read_as_written_and_a_tool_has_started_only_by_its_report() {
        let missing = || io::Error::from_raw_os_error(nix::libc::ENOENT);
        let (limits, program) = (Refusal::Limits(missing()), Refusal::Program(missing()));
        let after_start = [&[STARTED][..], &program.report()].concat();
        assert_eq!(after_start.len() as u64, REPORT_MAX);
        for (report, refusal) in [(limits.report(), limits), (after_start, program)] {
            let read = Refusal::parse(&report).expect("a refusal");
            assert_eq!(format!("{read:?}"), format!("{refusal:?}"));
        }
        assert!(Refusal::parse(&[STARTED]).is_none());
        let others: [&[u8]; 5] = [
            &[],
            &[9, 2, 0, 0, 0],
            &[LIMITS, 2, 0, 0],
            &[PROGRAM, 2, 0, 0, 0],
            &[STARTED, STARTED],
        ];
        for other in others {
            let read = Refusal::parse(other);
            assert!(
                matches!(&read, Some(Refusal::Limits(error)) if error.to_string().contains("did not start")),
                "{other:?}: {read:?}"
            );
        }
    }
}
