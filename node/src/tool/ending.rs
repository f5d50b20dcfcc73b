//! The end of a program and of its process group.

use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// Interval between two checks of a killed program.
const ENDING_POLL: Duration = Duration::from_millis(20);
/// Longest wait for a killed program to end. A program hanging in the kernel, on a dead device,
/// never ends and is left behind.
const DYING: Duration = Duration::from_secs(5);

/// Whether an unreaped program has ended; the system answers `StillAlive` for a running program.
pub(super) fn is_over(child: &Child) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let Ok(pid) = i32::try_from(child.id()).map(Pid::from_raw) else {
        return false;
    };
    !matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive))
}

/// Kills every process in a program's group.
pub(super) fn kill_group(child: &Child) {
    if let Ok(pid) = i32::try_from(child.id()).map(Pid::from_raw) {
        let _ = killpg(pid, Signal::SIGKILL);
    }
}

/// Kills the program and its group, and reaps the program; returns whether the program is gone.
pub(super) fn end_group(child: &mut Child) -> bool {
    kill_group(child);
    if let Ok(pid) = i32::try_from(child.id()).map(Pid::from_raw) {
        // The program may have moved to another group.
        let _ = kill(pid, Signal::SIGKILL);
    }
    let killed = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if killed.elapsed() >= DYING {
            return false;
        }
        std::thread::sleep(ENDING_POLL);
    }
    true
}
