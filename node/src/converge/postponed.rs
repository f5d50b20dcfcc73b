//! Service starts by packages, postponed until the configuration is written. A package starts its
//! services on the first install, before the files of the stack exist.

use std::collections::BTreeSet;
use std::path::PathBuf;

use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::Failure;

use super::services::{self, Unit};
use crate::failure::io;
use crate::files;
use crate::job::JobContext;
use crate::machine::Machine;

/// Names of postponed units, a line each. A boot starts all enabled units, and empties the folder.
const LIST: &str = "/run/muster/postponed-starts";
/// Longest list, in bytes.
const LIST_MAX: u64 = 64 << 10;
const POLICY_PATH: &str = "/usr/sbin/policy-rc.d";
const POLICY: &[u8] = b"#!/bin/sh
# Written by muster-node while it installs packages.
[ \"$1\" != --quiet ] || shift
[ \"$2\" != start ] || echo \"$1\" >>/run/muster/postponed-starts
exit 101
";

/// Keeps services from starting while packages are unpacked. invoke-rc.d and deb-systemd-invoke ask
/// this program, and exit code 101 means "not allowed". Running units are not stopped either; converge
/// restarts the plan's units at the end.
pub(super) struct NoServiceStarts {
    path: PathBuf,
    saved: PathBuf,
}

impl NoServiceStarts {
    /// Installs the policy. The image's own policy is moved aside; Muster's policy left by a killed
    /// run is replaced.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn begin(machine: &Machine) -> Result<Self, Failure> {
        let path = machine.path(POLICY_PATH);
        let saved = machine.path("/usr/sbin/policy-rc.d.before-muster");
        let list = machine.path(LIST);
        if let Some(folder) = list.parent() {
            std::fs::create_dir_all(folder).map_err(io(folder.display()))?;
        }
        if std::fs::read(&path).is_ok_and(|content| !is_ours(&content)) {
            std::fs::rename(&path, &saved).map_err(io(path.display()))?;
        }
        let guard = Self { path, saved };
        files::write_durably(&guard.path, 0o755, POLICY).map_err(io(guard.path.display()))?;
        Ok(guard)
    }
}

/// Whether a policy was written by this program, in any version.
fn is_ours(content: &[u8]) -> bool {
    let second = content.split(|byte| *byte == b'\n').nth(1);
    second == POLICY.split(|byte| *byte == b'\n').nth(1)
}

impl Drop for NoServiceStarts {
    fn drop(&mut self) {
        // A policy left behind only keeps later packages from starting their services; the next
        // converge removes the file.
        let restored = if self.saved.exists() {
            std::fs::rename(&self.saved, &self.path)
        } else {
            std::fs::remove_file(&self.path)
        };
        let _ = restored;
    }
}

/// Starts the postponed units that are enabled and not named by the plan. The end of a start is not
/// awaited: a unit may need the node's admission. A failed start is logged, because the stack does not
/// name the unit.
///
/// # Errors
/// `io`, or `systemd_unreadable`.
pub(super) fn start(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<(), Failure> {
    let Some(text) = machine.read(LIST, LIST_MAX)? else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(&text);
    let planned: BTreeSet<String> = plan
        .services
        .iter()
        .map(|service| services::unit_name(&service.name))
        .collect();
    let named: BTreeSet<String> = text
        .lines()
        .filter(|line| is_name(line))
        .map(services::unit_name)
        .collect();
    let named: Vec<String> = named.into_iter().collect();
    let units = services::query(machine, &named, cx)?;
    for (name, unit) in named.iter().zip(units) {
        if !is_due(&unit, &planned) {
            continue;
        }
        cx.log(&format!("starts {name}, enabled by its package"));
        if let Err(failure) = services::begin(machine, cx, name) {
            cx.log(&format!("{name} was not started: {}", failure.message));
        }
    }
    std::fs::remove_file(machine.path(LIST)).map_err(io(LIST))
}

/// Whether a unit is enabled, loaded, not running, and left to its package.
fn is_due(unit: &Unit, planned: &BTreeSet<String>) -> bool {
    let is_enabled = matches!(
        unit.file.as_str(),
        "enabled" | "enabled-runtime" | "generated"
    );
    is_enabled
        && unit.load == "loaded"
        && unit.active == "inactive"
        && unit.names.is_disjoint(planned)
}

/// Whether a line is the name of a unit. A maintainer script writes the line.
fn is_name(line: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "@._:-\\".contains(c);
    !line.is_empty() && line.len() < 256 && !line.starts_with('-') && line.chars().all(is_of_name)
}
