//! Messages with the name of a process, or other words of a user.

use super::sign::{Sign, any, begins};

/// Faults with the name of a process.
pub(super) const SIGNS: &[Sign] = &[
    // Slow storage also blocks tasks, so a blocked task has its own metric beside the lockup of a
    // processor.
    Sign {
        meaning: "a task is blocked for minutes, because of slow storage or a hung driver",
        metric: "kernel.hung_tasks",
        source: "Linux 6.12, kernel/hung_task.c, check_hung_task",
        counted: "INFO: task nvidia-smi:2310 blocked for more than 120 seconds.",
        silent: "INFO: task kworker/3:1:77 is blocked on a mutex likely owned by task kworker/3:2:78.",
        is_told: |message| {
            let words = ["blocked for more than", "blocked in I/O wait for more than"];
            message.starts_with("INFO: task ") && any(message, &words)
        },
    },
    Sign {
        meaning: "a processor stands still in a process",
        metric: "kernel.lockups",
        source: "Linux 6.12, kernel/watchdog.c, watchdog_timer_fn",
        counted: "watchdog: BUG: soft lockup - CPU#7 stuck for 22s! [python:4242]",
        silent: "watchdog: Delayed init of the lockup detector failed: -19",
        is_told: |message| message.starts_with("watchdog: BUG: soft lockup"),
    },
    Sign {
        meaning: "the machine ran out of memory; a job at its own limit is not counted",
        metric: "kernel.oom_kills",
        source: "Linux 6.12, mm/oom_kill.c, __oom_kill_process",
        counted: "Out of memory: Killed process 4242 (python)",
        silent: "Memory cgroup out of memory: Killed process 4242 (python)",
        is_told: |message| message.starts_with("Out of memory: Killed process"),
    },
];

/// Returns whether a message contains words chosen by an unprivileged user and reports no fault of
/// the machine. Examples are the name of a process or cgroup, and the version of a driver's client.
/// Mount options are another example, because any user namespace may mount some file systems
/// (fs/fs_parser.c, fs/overlayfs/params.c, mm/shmem.c, fs/fuse/inode.c).
///
/// A name has at most 15 bytes, so the longer words are the kernel's own.
pub(super) fn names_a_process(message: &str) -> bool {
    let starts = [
        "traps: ",
        "Memory cgroup out of memory",
        "oom-kill:",
        "audit: ",
        "CPU: ",
        "process '",
        "INFO: task ",
        "NVRM: API mismatch",
        "overlayfs: ",
        "tmpfs: ",
        "fuse: ",
        "cgroup: ",
        "netlink: ",
        "ptrace attach of ",
    ];
    let words = [
        ": Unknown parameter '",
        ": Bad value for '",
        "]: segfault at ",
        "potentially unexpected fatal signal",
        "invoked oom-killer",
        " Comm: ",
        "): drop_caches: ",
        "rocess information: process ",
        "amdgpu:  Process ",
        ": attempt to access beyond end of device",
        ": page allocation failure: order:",
        "]: unhandled exception: ",
        "]: undefined instruction: ",
        "used greatest stack depth: ",
        "): Using mlock ulimits for SHM_HUGETLB",
        "] vsyscall attempted with vsyscall=",
    ];
    let own_fault = message.starts_with("traps: PANIC: double fault");
    !own_fault && (begins(message, &starts) || any(message, &words))
}
