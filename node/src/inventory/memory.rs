//! The memory seen by the kernel, and the modules listed by the firmware.

use muster_core::facts::{Memory, MemoryModule};

use super::text;

/// Builds the memory facts. `modules` is `None` when the firmware lists none.
pub fn read(modules: Option<Vec<MemoryModule>>) -> Memory {
    Memory {
        total_bytes: total().unwrap_or(0),
        installed_bytes: modules
            .as_ref()
            .map(|modules| modules.iter().map(|module| module.size_bytes).sum()),
        modules: modules.unwrap_or_default(),
    }
}

/// Reads `MemTotal:       16314484 kB`, the first line (proc_meminfo(5)); kB are KiB.
fn total() -> Option<u64> {
    let bytes = text::bytes("/proc/meminfo")?;
    let info = String::from_utf8_lossy(&bytes).into_owned();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
