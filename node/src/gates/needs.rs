//! Requirements of a gate, checked on the node: architecture, no jobs, no protection, idle GPUs. An
//! unknown state counts as unmet.

use std::io::ErrorKind;
use std::path::Path;

use muster_core::gates::{Gate, Need, SideEffect};

use super::Bench;

/// Programs with open but unused GPUs: services of the driver and of Muster. As in
/// `/proc/PID/comm`, with at most 15 characters.
const SERVICES: [&str; 7] = [
    "nvidia-persiste",
    "nv-fabricmanage",
    "nv-hostengine",
    "nvidia-imex",
    "dcgm-exporter",
    "nvidia-smi",
    "muster-node",
];
/// The reason of a gate beside jobs.
const IN_USE: &str = "the gate needs a drained node; jobs may run on this node";
/// Maximum number of processes checked.
const PROCESSES_MAX: usize = 100_000;

/// Returns the reason against running a gate now, if any.
pub(super) fn refusal(gate: &Gate, bench: &Bench<'_>) -> Option<String> {
    let arch = bench.plan.profile.arch.as_str();
    if !gate.arch.is_empty() && !gate.arch.iter().any(|known| known == arch) {
        return Some(format!(
            "the gate supports {}; this node is {arch}",
            gate.arch.join(" and ")
        ));
    }
    // The effects of a gate from before the rule of programs are unknown.
    let may_write =
        gate.effects.contains(&SideEffect::WritesDisk) || bench.plan.is_former(&gate.id);
    if bench.plan.protected && may_write {
        return Some("the gate may write to a disk; the node is protected".to_owned());
    }
    gate.needs.iter().find_map(|need| match need {
        Need::Drained if bench.plan.in_use => Some(IN_USE.to_owned()),
        Need::Drained => None,
        Need::GpusIdle => busy(&bench.machine.path("/proc")),
    })
}

/// Returns the process with an open GPU.
fn busy(proc: &Path) -> Option<String> {
    let Ok(processes) = std::fs::read_dir(proc) else {
        return Some("the gate needs idle GPUs; /proc cannot be read".into());
    };
    for process in processes.flatten().take(PROCESSES_MAX) {
        let name = process.file_name();
        let Some(pid) = name
            .to_str()
            .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        let comm = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        let comm = comm.trim();
        if SERVICES.contains(&comm) {
            continue;
        }
        match held(&process.path()) {
            Ok(None) => {}
            Ok(Some(device)) => {
                return Some(format!(
                    "the gate needs idle GPUs; process {pid} ({comm}) holds {device} open"
                ));
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Some("the gate needs idle GPUs; only root can check them".into());
            }
            // The process has ended.
            Err(_) => {}
        }
    }
    None
}

/// Returns the GPU held open by a process, if any.
fn held(process: &Path) -> std::io::Result<Option<String>> {
    for file in std::fs::read_dir(process.join("fd"))?.flatten() {
        let Ok(target) = std::fs::read_link(file.path()) else {
            continue;
        };
        let target = target.to_string_lossy();
        let number = target
            .strip_prefix("/dev/nvidia")
            .or_else(|| target.strip_prefix("/dev/dri/renderD"));
        let numbered =
            number.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
        if numbered || target == "/dev/kfd" {
            return Ok(Some(target.into_owned()));
        }
    }
    Ok(None)
}
