//! Kernel messages during a gate, as evidence for every verdict. An unreadable log gives no
//! evidence and no error.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use nix::fcntl::OFlag;

use crate::machine::Machine;
use crate::tool;

/// Maximum read in bytes; the kernel's buffer is rarely longer.
const READ_MAX: usize = 16 << 20;
/// Maximum kept in bytes, from the end.
const KEPT_MAX: usize = 16 << 10;
/// Time before the gate included in the evidence: causes of a hang are often logged shortly before.
const BEFORE_US: u64 = 10_000_000;
/// A read returns a single record (Documentation/ABI/testing/dev-kmsg), never longer than this.
const RECORD_MAX: usize = 16 << 10;

/// The kernel's time, in µs since the boot.
pub(super) fn now_us(machine: &Machine) -> Option<u64> {
    let text = machine.read("/proc/uptime", 128).ok()??;
    let seconds: f64 = String::from_utf8_lossy(&text)
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    seconds.is_finite().then_some((seconds * 1e6) as u64)
}

/// Returns the lines since shortly before a time, oldest first.
pub(super) fn since(machine: &Machine, from_us: Option<u64>) -> String {
    let Some(from_us) = from_us else {
        return String::new();
    };
    let flags = OFlag::O_NONBLOCK.bits();
    let Ok(mut file) = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(machine.path("/dev/kmsg"))
    else {
        return String::new();
    };
    let (mut bytes, mut record) = (Vec::new(), vec![0; RECORD_MAX]);
    while bytes.len() < READ_MAX {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&record[..count]),
            // Overwritten before the read; the next record follows.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => bytes.push(b'\n'),
            // The end of the buffer.
            Err(_) => break,
        }
    }
    let from_us = from_us.saturating_sub(BEFORE_US);
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = text
        .lines()
        .filter_map(|line| read(line, from_us))
        .collect();
    tool::tail(lines.join("\n").as_bytes(), KEPT_MAX)
}

/// Converts `6,339,5140900,-;NET: Registered` to `[5.140900] NET: Registered`. Indented lines are
/// properties of the record.
fn read(line: &str, from_us: u64) -> Option<String> {
    let (head, text) = line.split_once(';')?;
    let at: u64 = head.split(',').nth(2)?.parse().ok()?;
    (at >= from_us).then(|| format!("[{}.{:06}] {text}", at / 1_000_000, at % 1_000_000))
}
