//! The limit that a tool has reached, from the events of its cgroup.

use std::fmt;

use super::limits::Limits;

/// A reached limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ceiling {
    /// Processes and threads of the tool, together.
    Processes(u64),
    /// Memory of the tool, in bytes.
    Memory(u64),
    /// The limit of the delegated cgroup. The tool was below the tool's own limit.
    NodeProcesses,
    /// The memory of the node, or of a cgroup above the tool's. The tool was below its own limit.
    NodeMemory,
}

impl fmt::Display for Ceiling {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Processes(most) => write!(to, "exceeded its limit of {most} processes"),
            Self::NodeProcesses => {
                to.write_str("was killed because the cgroup above ran out of processes")
            }
            Self::Memory(bytes) => {
                write!(to, "exceeded its limit of {} MiB of memory", bytes >> 20)
            }
            Self::NodeMemory => write!(to, "was killed because the node ran out of memory"),
        }
    }
}

/// Returns the reached limit from `pids.events` and `memory.events` (cgroup-v2.rst of the kernel),
/// and from the number of processes refused by the delegated cgroup. A text without the counter
/// counts as 0.
pub(super) fn find_ceiling(
    pids: &str,
    refused_above: u64,
    memory: &str,
    limits: Limits,
) -> Option<Ceiling> {
    if count(pids, "max") > 0 {
        return Some(Ceiling::Processes(limits.processes));
    }
    if refused_above > 0 {
        return Some(Ceiling::NodeProcesses);
    }
    match (count(memory, "oom_kill"), count(memory, "oom")) {
        (0, _) => None,
        (_, 0) => Some(Ceiling::NodeMemory),
        (_, _) => Some(Ceiling::Memory(limits.memory_bytes)),
    }
}

/// Returns the value of a line `NAME VALUE`.
pub(super) fn count(events: &str, name: &str) -> u64 {
    let value = |line: &str| {
        let (found, value) = line.split_once(' ')?;
        (found == name).then(|| value.trim().parse().ok()).flatten()
    };
    events.lines().find_map(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        processes: 4096,
        memory_bytes: 960 << 20,
    };
    const QUIET: &str =
        "low 0\nhigh 0\nmax 31\noom 0\noom_kill 0\noom_group_kill 0\nsock_throttled 0\n";

    #[test]
    fn a_reached_limit_is_named_with_its_number() {
        let memory = |oom: u64, killed: u64| {
            QUIET
                .replace("oom 0", &format!("oom {oom}"))
                .replace("oom_kill 0", &format!("oom_kill {killed}"))
        };
        let told = |pids: &str, memory: &str| {
            find_ceiling(pids, 0, memory, LIMITS).map(|ceiling| ceiling.to_string())
        };
        assert_eq!(told("max 0\n", QUIET), None);
        assert_eq!(told("", ""), None, "an unreadable file is no reached limit");
        assert_eq!(
            told("max 11159\n", QUIET).as_deref(),
            Some("exceeded its limit of 4096 processes")
        );
        let refused = |pids: &str| find_ceiling(pids, 1, QUIET, LIMITS);
        assert_eq!(refused("max 3\n"), Some(Ceiling::Processes(4096)));
        assert_eq!(
            refused("max 0\n")
                .map(|ceiling| ceiling.to_string())
                .as_deref(),
            Some("was killed because the cgroup above ran out of processes")
        );
        assert_eq!(
            told("max 0\n", &memory(1, 3)).as_deref(),
            Some("exceeded its limit of 960 MiB of memory")
        );
        assert_eq!(
            told("max 0\n", &memory(0, 1)).as_deref(),
            Some("was killed because the node ran out of memory")
        );
        assert_eq!(
            told("max 0\n", &memory(2, 0)),
            None,
            "an allocation that failed has killed no process"
        );
    }
}
