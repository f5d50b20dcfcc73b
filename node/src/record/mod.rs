//! `muster-node record DIR`: what this machine's tools print, with everything scrubbed that names the machine or its owner, so that parsers can be written
//! from it. Runs only what reads; nothing is put under load, and nothing leaves the machine.

mod scrub; // Serials, UUIDs, addresses and names become pseudonyms

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use muster_core::wire::node::Failure;
use serde::Serialize;

pub use scrub::Scrubber;

use crate::cli;
use crate::failure::{fatal, io};
use crate::job::JobContext;
use crate::tool::{self, Call, ToolError};

/// A hung driver must not hang the rest.
const TOOL_TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// Kept of one output, in bytes.
const OUTPUT_MAX: usize = 2 << 20;

const QUERY: &str = "--query-gpu=index,count,name,pci.bus_id,driver_version,vbios_version,inforom.img,persistence_mode,mig.mode.current,compute_mode,\
                     memory.total,memory.used,utilization.gpu,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,\
                     ecc.mode.current,ecc.mode.pending,ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total,\
                     ecc.errors.corrected.aggregate.total,ecc.errors.uncorrected.aggregate.total,remapped_rows.correctable,remapped_rows.uncorrectable,\
                     remapped_rows.pending,remapped_rows.failure,temperature.gpu,temperature.memory,power.draw,power.limit,clocks.current.sm,clocks.max.sm";

/// The file, the parser that reads it (empty when none does), and the call.
const CALLS: &[(&str, &str, &[&str])] = &[
    ("nvidia-smi-q.xml", "nvidia-smi-xml", &["nvidia-smi", "-q", "-x"]),
    ("nvidia-smi-q.txt", "nvidia-smi-text", &["nvidia-smi", "-q"]),
    ("nvidia-smi-query.csv", "nvidia-smi-csv", &["nvidia-smi", QUERY, "--format=csv"]),
    ("nvidia-smi-nvlink-s.txt", "nvidia-smi-nvlink", &["nvidia-smi", "nvlink", "-s"]),
    ("nvidia-smi-nvlink-e.txt", "", &["nvidia-smi", "nvlink", "-e"]),
    ("nvidia-smi-topo.txt", "nvidia-smi-topo", &["nvidia-smi", "topo", "-m"]),
    ("dcgmi-diag-1.json", "dcgm-diag", &["dcgmi", "diag", "-r", "1", "-j"]),
    ("rocm-smi.json", "rocm-smi", &["rocm-smi", "-a", "--showmeminfo", "vram", "--json"]),
    ("amd-smi-metric.json", "amd-smi", &["amd-smi", "metric", "--json"]),
    ("amd-smi-static.json", "", &["amd-smi", "static", "--json"]),
    ("ibstat.txt", "ibstat", &["ibstat"]),
    ("perfquery.txt", "perfquery", &["perfquery", "-x"]),
    ("ibv_devinfo.txt", "", &["ibv_devinfo"]),
    ("rdma-link.txt", "", &["rdma", "link"]),
    ("lshw.json", "lshw", &["lshw", "-json"]),
    ("lspci.txt", "", &["lspci", "-vvv", "-nn"]),
    ("nvme-list.json", "", &["nvme", "list", "-o", "json"]),
    ("smartctl-nvme0.json", "smartctl", &["smartctl", "--json=c", "-x", "/dev/nvme0"]),
    ("nvme-smart-log-nvme0.json", "nvme-smart-log", &["nvme", "smart-log", "-o", "json", "/dev/nvme0"]),
    ("df-space.txt", "df", &["df", "-P", "-k"]),
    ("df-inodes.txt", "df", &["df", "-P", "-i"]),
    ("mdstat.txt", "mdstat", &["cat", "/proc/mdstat"]),
    ("dmesg.txt", "kernel-log", &["dmesg"]),
    ("chronyc-tracking.txt", "", &["chronyc", "tracking"]),
    ("numactl.txt", "", &["numactl", "-H"]),
];

/// What lies in the folder.
#[derive(Debug, Serialize)]
struct Index {
    /// muster-node's own.
    version: &'static str,
    recordings: Vec<Recording>,
    /// Distinct values that became pseudonyms, by kind.
    scrubbed: Vec<(String, usize)>,
}

#[derive(Debug, Serialize)]
struct Recording {
    file: &'static str,
    parser: &'static str,
    argv: Vec<&'static str>,
    /// `None` where it did not end by itself.
    exit: Option<i32>,
    /// Why there is no file, or that it was cut.
    remark: Option<String>,
}

/// Runs the verb. Exit codes: 0 done, 1 the folder cannot be written.
pub fn command(folder: &str) -> ExitCode {
    match run(Path::new(folder)) {
        Ok(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(failure) => cli::report(&failure),
    }
}

/// Records what is installed into a new folder, and says what it did, a line each.
///
/// # Errors
/// `io` when the folder is there already or cannot be written.
pub fn run(folder: &Path) -> Result<Vec<String>, Failure> {
    let name = folder.display().to_string();
    std::fs::create_dir(folder).map_err(|error| fatal("io", format!("{name}: {error}")))?;
    let cx = JobContext::foreground(TIMEOUT);
    let (mut recordings, mut outputs) = (Vec::new(), Vec::new());
    let mut scrubber = Scrubber::of_this_machine();
    for &(file, parser, argv) in CALLS {
        let (text, recording) = record(&cx, file, parser, argv)?;
        scrubber.learn(&text);
        outputs.push((file, text));
        recordings.push(recording);
    }
    // Learnt from all, then taken out of all: a serial that one tool labels stands bare in another's table.
    for (file, text) in outputs.iter().filter(|(_, text)| !text.is_empty()) {
        std::fs::write(folder.join(file), scrubber.scrub(text)).map_err(io(file))?;
    }
    let mut lines: Vec<String> = recordings.iter().map(line).collect();
    let scrubbed = scrubber.counts();
    lines.push(match scrubbed.is_empty() {
        true => "nothing had to be scrubbed".to_owned(),
        false => {
            let counts: Vec<String> = scrubbed.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            format!("scrubbed, the same value always by the same pseudonym: {}", counts.join(", "))
        }
    });
    lines.push(format!("look through {name} before you pass it on"));
    let index = Index { version: env!("CARGO_PKG_VERSION"), recordings, scrubbed };
    let index = serde_json::to_string_pretty(&index).map_err(|error| fatal("malformed", error.to_string()))?;
    std::fs::write(folder.join("index.json"), index).map_err(io("index.json"))?;
    Ok(lines)
}

fn line(recording: &Recording) -> String {
    let remark = recording.remark.as_deref().unwrap_or("recorded");
    format!("{:<28} {remark}", recording.file)
}

fn record(
    cx: &JobContext,
    file: &'static str,
    parser: &'static str,
    argv: &'static [&'static str],
) -> Result<(String, Recording), Failure> {
    let call = Call { argv, timeout: Some(TOOL_TIMEOUT), ..Call::default() };
    let (text, exit, remark) = match tool::run(cx, &call) {
        Ok(done) => {
            let cut = done.truncated || done.stdout.len() > OUTPUT_MAX;
            let text = String::from_utf8_lossy(&done.stdout[..done.stdout.len().min(OUTPUT_MAX)]).into_owned();
            let remark = match (text.is_empty(), done.status.code()) {
                (true, _) => Some("said nothing".to_owned()),
                (false, Some(0)) => cut.then(|| "cut".to_owned()),
                (false, exit) => {
                    Some(format!("ended with {}", exit.map_or("a signal".into(), |exit| exit.to_string())))
                }
            };
            (text, done.status.code(), remark)
        }
        Err(ToolError::Missing(program)) => (String::new(), None, Some(format!("{program} is not installed"))),
        Err(ToolError::TimedOut { after, stdout, .. }) => {
            (tool::tail(&stdout, OUTPUT_MAX), None, Some(format!("did not end within {} s", after.as_secs())))
        }
        Err(error @ (ToolError::Cancelled(_) | ToolError::Io(..))) => return Err(error.into()),
    };
    Ok((text, Recording { file, parser, argv: argv.to_vec(), exit, remark }))
}
