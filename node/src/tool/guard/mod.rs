//! Limits of a gate's tool and of its descendants: processes, memory, open files, and the sandbox.
//! Processes and memory are limited by a cgroup (v2) for each tool, below a cgroup that systemd has
//! delegated to muster-node. Without such a cgroup only the open files are limited.

mod ceiling; // The reached limit of a tool
mod cell; // The cgroup of a tool
mod group; // The delegated cgroup of this process
mod limits; // The limits of a machine
mod sandbox; // Network, disks and rights of a tool
mod scope; // A delegated cgroup for a verb run by hand
mod shim; // The process that enters the limits and becomes the tool
mod tree; // The cgroups below the delegated cgroup

use std::io::{PipeReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use muster_core::gates::Sandbox;

use cell::Cell;
use tree::Tree;

pub use ceiling::Ceiling;

pub(super) use shim::Refusal;
pub(crate) use shim::exec_tool;

/// The running executable, also after its file was replaced.
const OWN: &str = "/proc/self/exe";

/// The limits of all tools of a run.
#[derive(Debug)]
pub struct Guard {
    /// The executable of muster-node.
    shim: PathBuf,
    /// `None`: no limit of processes and memory.
    tree: Option<Tree>,
}

impl Guard {
    /// Prepares the limits in this process, and moves the process into a cgroup of its own. The
    /// reason of missing limits goes to `note`.
    pub(crate) fn enter(note: impl FnOnce(&str)) -> Self {
        let tree = group::find_own()
            .or_else(scope::open)
            .and_then(|base| Tree::open(&base));
        match tree {
            Ok(tree) => Self {
                shim: OWN.into(),
                tree: Some(tree),
            },
            Err(why) => {
                note(&format!(
                    "the tools of gates run without a limit of processes and memory: {why}"
                ));
                Self::files_only()
            }
        }
    }

    /// Limits the open files only.
    pub(crate) fn files_only() -> Self {
        Self {
            shim: OWN.into(),
            tree: None,
        }
    }

    /// Limits the tools below a delegated cgroup; `shim` is an executable of muster-node.
    ///
    /// # Errors
    /// The reason, where the cgroup cannot limit processes and memory.
    pub fn below(base: &Path, shim: impl Into<PathBuf>) -> Result<Self, String> {
        Tree::open(base).map(|tree| Self {
            shim: shim.into(),
            tree: Some(tree),
        })
    }

    /// Returns the command that enters the limits and the sandbox, and becomes the program. The
    /// stdin of the command is the pipe for the report; the program's own stdin is empty.
    pub(super) fn command(
        &self,
        argv: &[&str],
        sandbox: Option<Sandbox>,
    ) -> std::io::Result<(Command, Guarded)> {
        let cell = self.tree.as_ref().map(Tree::add_cell).transpose()?;
        let (report, writer) = std::io::pipe()?;
        let mut command = Command::new(&self.shim);
        command
            .arg0("muster-node")
            .args(shim::arguments(
                cell.as_ref().map(Cell::folder),
                sandbox,
                argv,
            ))
            .stdin(writer);
        let report = Some(report);
        Ok((command, Guarded { cell, report }))
    }
}

/// The limits of a started tool. Dropping the value kills the tool's descendants.
#[derive(Debug)]
pub(super) struct Guarded {
    cell: Option<Cell>,
    report: Option<PipeReader>,
}

impl Guarded {
    /// The limit that the tool has reached, if any.
    pub(super) fn ceiling(&self) -> Option<Ceiling> {
        self.cell.as_ref().and_then(Cell::ceiling)
    }

    /// Kills every process in the tool's cgroup.
    pub(super) fn kill(&self) {
        self.cell.iter().for_each(Cell::kill);
    }

    /// Returns the reason of a tool that has not started; call after the end of the process, with
    /// the status of the process.
    pub(super) fn refusal(&mut self, status: ExitStatus) -> Option<Refusal> {
        let mut bytes = Vec::new();
        let report = self.report.take()?;
        let read = report.take(shim::REPORT_MAX).read_to_end(&mut bytes);
        // A process killed before the report has the kill as the reason.
        let is_killed = status.signal().is_some() || self.ceiling().is_some();
        match read {
            Ok(0) if is_killed => None,
            Ok(_) => Refusal::parse(&bytes),
            Err(error) => Some(Refusal::Limits(error)),
        }
    }
}
