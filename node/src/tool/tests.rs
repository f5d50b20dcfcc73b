//! Processes that a program leaves behind.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::ending::is_over;
use super::{Call, FIRST_POLL, Running, run};
use crate::job::JobContext;

/// A program for an immediate end, with a background process left in the group. Also returns the
/// command line of the background process.
fn leaves(seconds: &str) -> ([String; 3], Vec<u8>) {
    let script = format!("sleep {seconds} >/dev/null 2>&1 &");
    (
        ["sh".into(), "-c".into(), script],
        format!("sleep\0{seconds}\0").into_bytes(),
    )
}

/// Waits until a number of processes have a command line, for 10 s at most, and returns the
/// processes. A killed process disappears when the kernel runs the process next.
fn await_running(line: &[u8], count: usize) -> Vec<Pid> {
    // A surviving process has the command line by now.
    std::thread::sleep(Duration::from_millis(100));
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let found = running(line);
        if found.len() == count || Instant::now() >= deadline {
            return found;
        }
        std::thread::sleep(FIRST_POLL);
    }
}

/// Returns the processes with a command line.
fn running(line: &[u8]) -> Vec<Pid> {
    let of = |entry: std::fs::DirEntry| {
        let same = std::fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == line);
        same.then(|| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
            .flatten()
    };
    std::fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(of)
        .collect()
}

#[test]
fn a_daemon_outlives_the_program_that_started_it_and_no_gate_leaves_one() {
    let cx = JobContext::foreground(Duration::from_secs(60));
    for (at, kills_leftovers) in [false, true].into_iter().enumerate() {
        let (argv, line) = leaves(&format!("{}.{at}1", 100_000 + std::process::id()));
        let call = Call {
            argv: &argv.each_ref().map(String::as_str),
            kills_leftovers,
            ..Call::default()
        };
        assert!(run(&cx, &call).expect("it ran").status.success());
        let left = await_running(&line, usize::from(!kills_leftovers));
        left.iter()
            .for_each(|pid| kill(*pid, Signal::SIGKILL).expect("it runs"));
        assert_eq!(left.len(), usize::from(!kills_leftovers));
    }
}

#[test]
fn who_drops_a_program_that_just_ended_drops_its_group() {
    let (argv, line) = leaves(&format!("{}.31", 100_000 + std::process::id()));
    let call = Call {
        argv: &argv.each_ref().map(String::as_str),
        ..Call::default()
    };
    let running_one = Running::start(&call).expect("it starts");
    while !is_over(&running_one.child) {
        std::thread::sleep(FIRST_POLL);
    }
    drop(running_one);
    assert_eq!(await_running(&line, 0), []);
}
