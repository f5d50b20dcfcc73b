//! The cgroups below the delegated cgroup: `main` for muster-node, and `tool-N` for every tool. A
//! cgroup with limits for child cgroups has no own processes, so muster-node moves to `main`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::cell::Cell;
use super::group::MAIN;
use super::limits::{Limits, Room};

/// The controllers of the limits.
const CONTROLLERS: [&str; 2] = ["pids", "memory"];
/// Moves of the processes to `main`: a process may start a second process during a move.
const MOVES: usize = 16;
/// Cgroups tried for a tool. A tool hanging in the kernel keeps the cgroup.
const CELLS_TRIED: usize = 64;

/// A delegated cgroup, prepared for tools.
#[derive(Debug)]
pub(super) struct Tree {
    base: PathBuf,
    limits: Limits,
    next: AtomicU64,
}

impl Tree {
    /// Prepares a delegated cgroup, and moves the processes to `main`.
    ///
    /// # Errors
    /// The reason, where the cgroup cannot limit processes and memory.
    pub(super) fn open(base: &Path) -> Result<Self, String> {
        let wrong = |error: io::Error| format!("{}: {error}", base.display());
        let controllers =
            std::fs::read_to_string(base.join("cgroup.controllers")).map_err(wrong)?;
        let known: Vec<&str> = controllers.split_whitespace().collect();
        if let Some(missing) = CONTROLLERS.iter().find(|wanted| !known.contains(wanted)) {
            return Err(format!(
                "the cgroup {} has no controller {missing}",
                base.display()
            ));
        }
        let main = base.join(MAIN);
        match std::fs::create_dir(&main) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(wrong(error));
            }
            Err(_) | Ok(()) => {}
        }
        if !main.join("cgroup.kill").exists() {
            return Err("the kernel is older than 5.14 and has no cgroup.kill".to_owned());
        }
        move_processes(base, &main).map_err(wrong)?;
        let enabled = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
        std::fs::write(base.join("cgroup.subtree_control"), enabled).map_err(wrong)?;
        let room = Room {
            processes_above: read_limit(&base.join("pids.max")),
            memory_above: read_limit(&base.join("memory.max")),
            ..Room::read().map_err(|errno| wrong(errno.into()))?
        };
        Ok(Self {
            base: base.to_owned(),
            limits: room.limits(),
            next: AtomicU64::new(0),
        })
    }

    /// Creates the cgroup of a tool.
    pub(super) fn add_cell(&self) -> io::Result<Cell> {
        let mut taken = None;
        for _ in 0..CELLS_TRIED {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            match Cell::create(self.base.join(format!("tool-{number}")), self.limits) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = Some(error),
                Err(error) => {
                    let path = self.base.display();
                    return Err(io::Error::other(format!("a cgroup below {path}: {error}")));
                }
                Ok(cell) => return Ok(cell),
            }
        }
        Err(taken.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
    }
}

/// Moves every process of a cgroup to a second cgroup.
fn move_processes(from: &Path, to: &Path) -> io::Result<()> {
    for _ in 0..MOVES {
        let processes = std::fs::read_to_string(from.join("cgroup.procs"))?;
        if processes.is_empty() {
            return Ok(());
        }
        for process in processes.lines() {
            match std::fs::write(to.join("cgroup.procs"), process) {
                // The process has ended.
                Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
                moved => moved?,
            }
        }
    }
    Err(io::Error::other("its processes did not move"))
}

/// Reads a limit of the cgroup above; `None` for `max`, and for the root without such a file.
fn read_limit(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}
