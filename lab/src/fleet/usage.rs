//! Memory of the server, and load of the host. A ratio is hard to interpret without both.

use serde::Serialize;

/// Usage as reported by the kernel in `/proc`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Usage {
    /// Resident memory of the server process in MiB; zero for a server not started by the run.
    pub server_mib: f64,
    /// Peak resident memory in MiB. A restarted server starts again from its current size.
    pub server_peak_mib: f64,
    /// Runnable processes, averaged over a minute.
    pub load: f64,
}

pub(super) fn of(server: Option<u32>) -> Usage {
    let status = server
        .and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok())
        .unwrap_or_default();
    let mib = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib: f64 = line
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or(0.0);
        kib / 1024.0
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load
        .split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0.0);
    Usage {
        server_mib: mib("VmRSS:"),
        server_peak_mib: mib("VmHWM:"),
        load,
    }
}
