//! `muster-node record DIR [-- COMMAND…]`: records the output of this machine's tools as a base for
//! parsers. Every value naming the machine or its owner is scrubbed. The built-in calls only read;
//! a tool loading the machine runs only when a person names the command. No data leaves the
//! machine.

mod scrub; // Replaces serials, UUIDs, addresses and names by pseudonyms

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use muster_core::wire::node::{Failure, FailureCode};
use serde::Serialize;

pub use scrub::Scrubber;

use crate::failure::{fatal, io};
use crate::job::JobContext;
use crate::terminal;
use crate::tool::{self, Call, ToolError};

/// Longest run of a tool: a hung driver must not hang the other recordings.
const TOOL_TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// Bytes kept of an output.
const OUTPUT_MAX: usize = 2 << 20;

const QUERY: &str = "--query-gpu=index,count,name,pci.bus_id,driver_version,vbios_version,inforom.img,persistence_mode,mig.mode.current,compute_mode,\
                     memory.total,memory.used,utilization.gpu,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,\
                     ecc.mode.current,ecc.mode.pending,ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total,\
                     ecc.errors.corrected.aggregate.total,ecc.errors.uncorrected.aggregate.total,remapped_rows.correctable,remapped_rows.uncorrectable,\
                     remapped_rows.pending,remapped_rows.failure,temperature.gpu,temperature.memory,power.draw,power.limit,clocks.current.sm,clocks.max.sm";

/// Per call: the file, the parser reading the file (empty without a parser), and the command.
const CALLS: &[(&str, &str, &[&str])] = &[
    (
        "nvidia-smi-q.xml",
        "nvidia-smi-xml",
        &["nvidia-smi", "-q", "-x"],
    ),
    ("nvidia-smi-q.txt", "nvidia-smi-text", &["nvidia-smi", "-q"]),
    (
        "nvidia-smi-query.csv",
        "nvidia-smi-csv",
        &["nvidia-smi", QUERY, "--format=csv"],
    ),
    (
        "nvidia-smi-nvlink-s.txt",
        "nvidia-smi-nvlink",
        &["nvidia-smi", "nvlink", "-s"],
    ),
    (
        "nvidia-smi-nvlink-e.txt",
        "",
        &["nvidia-smi", "nvlink", "-e"],
    ),
    (
        "nvidia-smi-topo.txt",
        "nvidia-smi-topo",
        &["nvidia-smi", "topo", "-m"],
    ),
    (
        "dcgmi-diag-1.json",
        "dcgm-diag",
        &["dcgmi", "diag", "-r", "1", "-j"],
    ),
    (
        "rocm-smi.json",
        "rocm-smi",
        &["rocm-smi", "-a", "--showmeminfo", "vram", "--json"],
    ),
    (
        "amd-smi-metric.json",
        "amd-smi",
        &["amd-smi", "metric", "--json"],
    ),
    ("amd-smi-static.json", "", &["amd-smi", "static", "--json"]),
    ("ibstat.txt", "ibstat", &["ibstat"]),
    ("perfquery.txt", "perfquery", &["perfquery", "-x"]),
    ("ibv_devinfo.txt", "", &["ibv_devinfo"]),
    ("rdma-link.txt", "", &["rdma", "link"]),
    (
        "ipmitool-sdr.txt",
        "ipmitool-sdr",
        &["ipmitool", "sdr", "elist"],
    ),
    ("lshw.json", "lshw", &["lshw", "-json"]),
    ("lspci.txt", "", &["lspci", "-vvv", "-nn"]),
    ("nvme-list.json", "", &["nvme", "list", "-o", "json"]),
    (
        "smartctl-nvme0.json",
        "smartctl",
        &["smartctl", "--json=c", "-x", "/dev/nvme0"],
    ),
    (
        "nvme-smart-log-nvme0.json",
        "nvme-smart-log",
        &["nvme", "smart-log", "-o", "json", "/dev/nvme0"],
    ),
    ("df-space.txt", "df", &["df", "-P", "-k"]),
    ("df-inodes.txt", "df", &["df", "-P", "-i"]),
    ("mdstat.txt", "mdstat", &["cat", "/proc/mdstat"]),
    ("dmesg.txt", "kernel-log", &["dmesg"]),
    ("chronyc-tracking.txt", "", &["chronyc", "tracking"]),
    ("numactl.txt", "", &["numactl", "-H"]),
];

/// The index of a folder of recordings.
#[derive(Debug, Serialize)]
struct Index {
    /// muster-node's own version.
    version: &'static str,
    recordings: Vec<Recording>,
    /// Number of distinct values replaced by pseudonyms, by kind.
    scrubbed: Vec<(String, usize)>,
}

#[derive(Debug, Serialize)]
struct Recording {
    file: String,
    parser: &'static str,
    argv: Vec<String>,
    /// `None` when the program did not end by itself.
    exit: Option<i32>,
    /// The file with the stderr of the requested command; absent for the built-in calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<String>,
    /// The reason for a missing file, or a note that the output was cut.
    remark: Option<String>,
}

/// A command to be recorded at a person's request: run first, without a shell and with an empty
/// stdin.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// Program and arguments.
    pub argv: Vec<&'a str>,
    /// From 1 s to [`ASKED_MAX`]. After the timeout the command is killed with its process group;
    /// the output so far is kept.
    pub timeout: Duration,
}

/// Files with the stdout and the stderr of the requested command.
const ASKED_FILES: [&str; 2] = ["command.txt", "command-stderr.txt"];
/// Default timeout of a requested command: an hour.
pub const ASKED_TIMEOUT: Duration = Duration::from_secs(3600);
/// Longest timeout of a requested command: a day.
pub const ASKED_MAX: Duration = Duration::from_secs(24 * 3600);

/// Runs the verb with the arguments `DIR [--timeout SECONDS] [-- COMMAND ARGUMENT…]`; `None` for
/// other arguments. Exit codes: 0 done, 1 the folder cannot be written or the command is missing.
pub fn command(words: &[&str]) -> Option<ExitCode> {
    let (folder, asked) = match words {
        [folder] => (folder, None),
        [folder, "--", argv @ ..] => (folder, Some((argv, ASKED_TIMEOUT))),
        [folder, "--timeout", seconds, "--", argv @ ..] => (
            folder,
            Some((argv, Duration::from_secs(seconds.parse().ok()?))),
        ),
        _ => return None,
    };
    let asked = asked.map(|(argv, timeout)| Asked {
        argv: argv.to_vec(),
        timeout,
    });
    Some(match run(Path::new(folder), asked.as_ref()) {
        Ok(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(failure) => terminal::report(&failure),
    })
}

/// Records the installed tools into a new folder, after the requested command. Returns one line per
/// recording.
///
/// # Errors
/// `usage` for an empty command or an invalid timeout, `tool_missing` for a command not installed,
/// `io` for a folder that exists or cannot be written. After an error about the command the folder
/// is removed.
pub fn run(folder: &Path, asked: Option<&Asked<'_>>) -> Result<Vec<String>, Failure> {
    let name = folder.display().to_string();
    if let Some(Asked { argv, timeout }) = asked {
        if argv.first().is_none_or(|program| program.is_empty()) {
            return Err(fatal(FailureCode::Usage, "no command follows --"));
        }
        if !(Duration::from_secs(1)..=ASKED_MAX).contains(timeout) {
            return Err(fatal(
                FailureCode::Usage,
                format!("the timeout must be 1 to {} seconds", ASKED_MAX.as_secs()),
            ));
        }
    }
    std::fs::create_dir(folder)
        .map_err(|error| fatal(FailureCode::Io, format!("{name}: {error}")))?;
    let (mut recordings, mut outputs) = (Vec::new(), Vec::new());
    let mut scrubber = Scrubber::of_this_machine();
    if let Some(asked) = asked {
        let (texts, recording) =
            record_asked(asked).inspect_err(|_| _ = std::fs::remove_dir(folder))?;
        outputs.extend(ASKED_FILES.into_iter().zip(texts));
        recordings.push(recording);
    }
    let cx = JobContext::foreground(TIMEOUT);
    for &(file, parser, argv) in CALLS {
        let (text, recording) = record(&cx, file, parser, argv)?;
        outputs.push((file, text));
        recordings.push(recording);
    }
    outputs.iter().for_each(|(_, text)| scrubber.learn(text));
    // Learned from all outputs before any output is scrubbed: a serial labelled by a tool is
    // unlabelled in another tool's table.
    for (file, text) in outputs.iter().filter(|(_, text)| !text.is_empty()) {
        std::fs::write(folder.join(file), scrubber.scrub(text)).map_err(io(file))?;
    }
    for argument in recordings
        .iter_mut()
        .flat_map(|recording| &mut recording.argv)
    {
        *argument = scrubber.scrub(argument);
    }
    let mut lines: Vec<String> = recordings.iter().map(line).collect();
    let scrubbed = scrubber.counts();
    lines.push(match scrubbed.is_empty() {
        true => "no value had to be scrubbed".to_owned(),
        false => {
            let counts: Vec<String> = scrubbed
                .iter()
                .map(|(kind, count)| format!("{count} {kind}"))
                .collect();
            format!(
                "scrubbed, with one pseudonym per value: {}",
                counts.join(", ")
            )
        }
    });
    lines.push(format!("review {name} before sharing the folder"));
    let index = Index {
        version: env!("CARGO_PKG_VERSION"),
        recordings,
        scrubbed,
    };
    let index = serde_json::to_string_pretty(&index)
        .map_err(|error| fatal(FailureCode::Malformed, error.to_string()))?;
    std::fs::write(folder.join("index.json"), index).map_err(io("index.json"))?;
    Ok(lines)
}

fn line(recording: &Recording) -> String {
    let remark = recording.remark.as_deref().unwrap_or("recorded");
    format!("{:<28} {remark}", recording.file)
}

/// Records the requested command: stdout, stderr, and its exit.
fn record_asked(asked: &Asked<'_>) -> Result<([String; 2], Recording), Failure> {
    let cx = JobContext::foreground(asked.timeout + TOOL_TIMEOUT);
    let call = Call {
        argv: &asked.argv,
        timeout: Some(asked.timeout),
        ..Call::default()
    };
    let (texts, exit, remark) = match tool::run(&cx, &call) {
        Ok(done) => {
            let cut = done.truncated || done.stdout.len().max(done.stderr.len()) > OUTPUT_MAX;
            (
                [head(&done.stdout), head(&done.stderr)],
                done.status.code(),
                how(
                    done.stdout.is_empty() && done.stderr.is_empty(),
                    done.status.code(),
                    cut,
                ),
            )
        }
        Err(ToolError::TimedOut {
            after,
            stdout,
            stderr,
            ..
        }) => (
            [head(&stdout), head(&stderr)],
            None,
            Some(format!("did not end within {} s", after.as_secs())),
        ),
        Err(
            error @ (ToolError::Missing(_)
            | ToolError::Limited { .. }
            | ToolError::Cancelled(_)
            | ToolError::Io(..)),
        ) => {
            return Err(error.into());
        }
    };
    let argv = asked
        .argv
        .iter()
        .map(|argument| (*argument).to_owned())
        .collect();
    let messages = (!texts[1].is_empty()).then(|| ASKED_FILES[1].to_owned());
    Ok((
        texts,
        Recording {
            file: ASKED_FILES[0].to_owned(),
            parser: "",
            argv,
            exit,
            messages,
            remark,
        },
    ))
}

/// Returns the start of an output, at most [`OUTPUT_MAX`] bytes.
fn head(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(OUTPUT_MAX)]).into_owned()
}

/// Returns a remark about the end of a program; `None` for a complete output with exit code 0.
fn how(silent: bool, exit: Option<i32>, cut: bool) -> Option<String> {
    match (silent, exit) {
        (true, _) => Some("printed no output".to_owned()),
        (false, Some(0)) => cut.then(|| "cut".to_owned()),
        (false, exit) => Some(format!(
            "ended with {}",
            exit.map_or("a signal".into(), |exit| exit.to_string())
        )),
    }
}

fn record(
    cx: &JobContext,
    file: &'static str,
    parser: &'static str,
    argv: &'static [&'static str],
) -> Result<(String, Recording), Failure> {
    let call = Call {
        argv,
        timeout: Some(TOOL_TIMEOUT),
        ..Call::default()
    };
    let (text, exit, remark) = match tool::run(cx, &call) {
        Ok(done) => {
            let cut = done.truncated || done.stdout.len() > OUTPUT_MAX;
            let text = head(&done.stdout);
            let remark = how(text.is_empty(), done.status.code(), cut);
            (text, done.status.code(), remark)
        }
        Err(ToolError::Missing(program)) => (
            String::new(),
            None,
            Some(format!("{program} is not installed")),
        ),
        Err(ToolError::TimedOut { after, stdout, .. }) => (
            tool::tail(&stdout, OUTPUT_MAX),
            None,
            Some(format!("did not end within {} s", after.as_secs())),
        ),
        Err(error @ (ToolError::Limited { .. } | ToolError::Cancelled(_) | ToolError::Io(..))) => {
            return Err(error.into());
        }
    };
    let argv = argv.iter().map(|argument| (*argument).to_owned()).collect();
    Ok((
        text,
        Recording {
            file: file.to_owned(),
            parser,
            argv,
            exit,
            messages: None,
            remark,
        },
    ))
}

#[cfg(test)]
mod tests; // A folder of recordings
