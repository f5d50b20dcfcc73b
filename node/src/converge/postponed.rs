//! Service starts by packages, postponed until the configuration is written. A package starts its
//! services on the first install, before the files of the stack exist.

use std::collections::BTreeSet;
use std::path::PathBuf;

use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::{Failure, FailureCode};

use super::services;
use super::units::{self, Unit};
use crate::failure::io;
use crate::files;
use crate::job::JobContext;
use crate::machine::Machine;

/// The postponed starts: `package NAME` and `unit NAME`. A boot starts all enabled units, and empties
/// the folder.
const LIST: &str = "/run/muster/postponed-starts";
/// Longest list, in bytes.
const LIST_MAX: u64 = 1 << 20;
const POLICY_PATH: &str = "/usr/sbin/policy-rc.d";
/// deb-systemd-invoke names the units of a package in one call, and asks for the first alone, so the
/// package is noted as well. On an upgrade a package may leave a stopped unit stopped: only the unit is
/// noted.
const POLICY: &[u8] = b"#!/bin/sh
# Written by muster-node while it installs packages.
[ \"$1\" != --quiet ] || shift
list=/run/muster/postponed-starts
case \"$2\" in
start) printf 'package %s\\nunit %s\\n' \"$DPKG_MAINTSCRIPT_PACKAGE\" \"$1\" >>$list ;;
restart) printf 'unit %s\\n' \"$1\" >>$list ;;
esac
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
/// awaited: a unit may need the node's admission. A refused start is logged, because the stack does
/// not name the unit. Without an answer about a unit, the list is kept for the next run. The image's
/// own policy is not asked: the boot would start the unit too.
///
/// # Errors
/// `io`; `cancelled`, or `deadline`, with the list kept for the next run.
pub(super) fn start(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<(), Failure> {
    let Some(text) = machine.read(LIST, LIST_MAX)? else {
        return Ok(());
    };
    let planned: BTreeSet<String> = plan
        .services
        .iter()
        .map(|service| units::unit_name(&service.name))
        .collect();
    let mut is_answered = true;
    for name in list_units(machine, &String::from_utf8_lossy(&text)) {
        let found = units::query(machine, std::slice::from_ref(&name), cx);
        let unit = match found {
            Ok(units) => units.into_iter().next().unwrap_or_default(),
            Err(failure) if is_of_unit(&failure) => {
                cx.log(&format!("{name} was not started: {}", failure.message));
                is_answered = false;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        if !is_due(&unit, &planned) {
            continue;
        }
        cx.log(&format!("starts {name}, enabled by its package"));
        match services::begin(machine, cx, &name) {
            Err(failure) if is_of_unit(&failure) => {
                cx.log(&format!("{name} was not started: {}", failure.message));
            }
            begun => begun?,
        }
    }
    match is_answered {
        true => std::fs::remove_file(machine.path(LIST)).map_err(io(LIST)),
        false => Ok(()),
    }
}

/// Returns the units of a list: the units named, and all units of the packages named.
fn list_units(machine: &Machine, list: &str) -> BTreeSet<String> {
    let named = |kind: &'static str| list.lines().filter_map(move |line| line.strip_prefix(kind));
    let packages: BTreeSet<String> = named("package ").map(str::to_owned).collect();
    // An init script may have a suffix, as in `hwclock.sh`.
    let units = named("unit ").map(|unit| units::unit_name(unit.trim_end_matches(".sh")));
    let mut units: BTreeSet<String> = units.collect();
    if !packages.is_empty() {
        units.append(&mut units::units_of(machine, &packages));
    }
    // A template has no start of its own.
    units.retain(|unit| !unit.contains("@."));
    units
}

/// Whether systemd refused a unit. Any other failure is of the run.
fn is_of_unit(failure: &Failure) -> bool {
    matches!(
        failure.code,
        FailureCode::ServiceFailed | FailureCode::SystemdUnreadable
    )
}

/// Whether a unit is enabled, not running, and left to its package.
fn is_due(unit: &Unit, planned: &BTreeSet<String>) -> bool {
    let is_enabled = matches!(
        unit.file.as_str(),
        "enabled" | "enabled-runtime" | "generated"
    );
    is_enabled && unit.active == "inactive" && unit.names.is_disjoint(planned)
}
