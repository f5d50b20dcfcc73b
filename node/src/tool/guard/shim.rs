//! `muster-node exec-tool CGROUP OPEN_FILES [NETWORK DISKS] -- PROGRAM ARGUMENT…`: enters the
//! limits and the sandbox of a tool and becomes the tool, so the tool has both from the first
//! instruction. CGROUP is `-` without a cgroup; without NETWORK and DISKS there is no sandbox. The
//! start is reported through stdin, a pipe to muster-node: a process without a report is no tool
//! with limits.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use muster_core::gates::Sandbox;
use muster_core::wire::node::Failure;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::limits::OPEN_FILES;
use super::sandbox;
use crate::failure::io as io_failure;
use crate::terminal::usage;

/// The word for a tool without a cgroup.
const NO_CGROUP: &str = "-";
/// Bytes of a report. An error of limits, sandbox or program has the number of the error.
const LIMITS: u8 = 1;
const PROGRAM: u8 = 2;
const SANDBOX: u8 = 4;
/// Limits and sandbox are entered, and the program starts next.
const STARTED: u8 = 3;
/// Longest report, in bytes: [`STARTED`], then [`PROGRAM`] and the number of the error.
pub(super) const REPORT_MAX: u64 = 6;

/// The reason of a tool that has not started.
#[derive(Debug)]
pub(in crate::tool) enum Refusal {
    /// A limit was not accepted, or the report is not from `exec-tool`.
    Limits(io::Error),
    /// The sandbox was not made.
    Sandbox(io::Error),
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
            [SANDBOX, number @ ..] => error(number).map(Self::Sandbox),
            [STARTED, PROGRAM, number @ ..] => error(number).map(Self::Program),
            _ => None,
        };
        let unknown = || io::Error::other("muster-node did not start the tool");
        Some(refusal.unwrap_or_else(|| Self::Limits(unknown())))
    }

    fn report(&self) -> Vec<u8> {
        let (first, error) = match self {
            Self::Limits(error) => (LIMITS, error),
            Self::Sandbox(error) => (SANDBOX, error),
            Self::Program(error) => (PROGRAM, error),
        };
        let number = error.raw_os_error().unwrap_or(nix::libc::EIO);
        [&[first][..], &number.to_le_bytes()].concat()
    }
}

/// Returns the arguments of the verb for a tool.
pub(super) fn arguments(
    cgroup: Option<&Path>,
    sandbox: Option<Sandbox>,
    argv: &[&str],
) -> Vec<OsString> {
    let cgroup = cgroup.map_or_else(|| NO_CGROUP.into(), |folder| folder.as_os_str().to_owned());
    let own: [OsString; 3] = ["exec-tool".into(), cgroup, OPEN_FILES.to_string().into()];
    let words = sandbox.map(|sandbox| [sandbox.network.as_str(), sandbox.disks.as_str()]);
    let words = words.iter().flatten().chain(&["--"]).chain(argv);
    own.into_iter()
        .chain(words.map(|word| OsString::from(*word)))
        .collect()
}

/// Runs the verb. Returns only after a failed start.
///
/// # Errors
/// `usage`, and `io` where muster-node does not read the report.
pub(crate) fn exec_tool(words: &[&str]) -> Result<ExitCode, Failure> {
    let (cgroup, open_files, sandbox, tool) = match words {
        [cgroup, open_files, "--", tool @ ..] => (cgroup, open_files, None, tool),
        [cgroup, open_files, network, disks, "--", tool @ ..] => (
            cgroup,
            open_files,
            Some(parse_sandbox(network, disks)?),
            tool,
        ),
        _ => return Err(usage()),
    };
    let [program, arguments @ ..] = tool else {
        return Err(usage());
    };
    let open_files = open_files.parse().map_err(|_| usage())?;
    // Duplicated, because the tool has another stdin. The tool does not inherit the duplicate.
    let report = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(io_failure("stdin"))?;
    let mut report = File::from(report);
    let refusal = match enter_all(cgroup, open_files, sandbox) {
        Ok(()) => {
            report.write_all(&[STARTED]).map_err(io_failure("stdin"))?;
            Refusal::Program(
                Command::new(program)
                    .args(arguments)
                    .stdin(Stdio::null())
                    .exec(),
            )
        }
        Err(refusal) => refusal,
    };
    report
        .write_all(&refusal.report())
        .map_err(io_failure("stdin"))?;
    Ok(ExitCode::FAILURE)
}

fn parse_sandbox(network: &str, disks: &str) -> Result<Sandbox, Failure> {
    Ok(Sandbox {
        network: network.parse().map_err(|_| usage())?,
        disks: disks.parse().map_err(|_| usage())?,
    })
}

/// Enters the limits and the sandbox.
fn enter_all(cgroup: &str, open_files: u64, sandbox: Option<Sandbox>) -> Result<(), Refusal> {
    enter(cgroup, open_files).map_err(Refusal::Limits)?;
    match sandbox {
        Some(wanted) => sandbox::enter(wanted).map_err(Refusal::Sandbox),
        None => Ok(()),
    }
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
    use muster_core::gates::{Disks, Network};

    use super::*;

    #[test]
    fn the_words_of_a_tool_stay_its_own() {
        let argv = ["fio", "--", "--name=a b"];
        let words = |cgroup: Option<&str>| arguments(cgroup.map(Path::new), None, &argv);
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
        let sandbox = Sandbox {
            network: Network::Loopback,
            disks: Disks::Hidden,
        };
        let closed = ["exec-tool", "-", "65536", "loopback", "hidden", "--"];
        assert_eq!(
            arguments(None, Some(sandbox), &argv),
            [&closed[..], &own].concat()
        );
    }

    #[test]
    fn a_report_is_read_as_written_and_a_tool_has_started_only_by_its_report() {
        let missing = || io::Error::from_raw_os_error(nix::libc::ENOENT);
        let (limits, program) = (Refusal::Limits(missing()), Refusal::Program(missing()));
        let after_start = [&[STARTED][..], &program.report()].concat();
        assert_eq!(after_start.len() as u64, REPORT_MAX);
        let sandbox = Refusal::Sandbox(missing());
        for (report, refusal) in [
            (limits.report(), limits),
            (sandbox.report(), sandbox),
            (after_start, program),
        ] {
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
