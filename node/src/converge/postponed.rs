//! Service starts by packages, postponed until the files of the stack are written. A package starts
//! its services on the first install, and restarts its services on an upgrade.

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

/// The postponed starts: `package NAME`, `unit NAME`, `restart NAME`, and `stopped NAME` for a stop
/// that was not made. A boot starts all enabled units, and empties the folder.
const LIST: &str = "/run/muster/postponed-starts";
/// The packages removed by the present transaction, a name per line.
const LEAVING: &str = "/run/muster/leaving-packages";
/// Longest list, in bytes.
const LIST_MAX: u64 = 1 << 20;
const POLICY_PATH: &str = "/usr/sbin/policy-rc.d";
/// deb-systemd-invoke names the units of a package in one call, and asks for the first alone, so the
/// package is noted as well. On an upgrade a package may leave a stopped unit stopped: only the unit is
/// noted. An upgrade may also stop a unit first and start it afterwards. A removed package stops its
/// units. A query changes nothing: libc6 restarts the services that it finds running.
const POLICY: &[u8] = b"#!/bin/sh
# Written by muster-node while it installs packages.
[ \"$1\" != --quiet ] || shift
list=/run/muster/postponed-starts
case \"$2\" in
start) printf 'package %s\\nunit %s\\n' \"$DPKG_MAINTSCRIPT_PACKAGE\" \"$1\" >>$list ;;
restart) printf 'unit %s\\nrestart %s\\n' \"$1\" \"$1\" >>$list ;;
try-restart) printf 'restart %s\\n' \"$1\" >>$list ;;
status) exit 0 ;;
stop)
    ! grep -qxF -e \"$DPKG_MAINTSCRIPT_PACKAGE\" /run/muster/leaving-packages 2>/dev/null || exit 0
    printf 'stopped %s\\n' \"$1\" >>$list ;;
esac
exit 101
";

/// Keeps services from starting while packages are unpacked. invoke-rc.d and deb-systemd-invoke ask
/// this program, and exit code 101 means "not allowed". Only the units of leaving packages are stopped;
/// all other units run on until the end of converge.
pub(super) struct NoServiceStarts {
    path: PathBuf,
    saved: PathBuf,
    leaving: PathBuf,
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
        let leaving = machine.path(LEAVING);
        // The list of a killed run would let upgrades stop units.
        std::fs::write(&leaving, "").map_err(io(leaving.display()))?;
        if std::fs::read(&path).is_ok_and(|content| !is_ours(&content)) {
            std::fs::rename(&path, &saved).map_err(io(path.display()))?;
        }
        let guard = Self {
            path,
            saved,
            leaving,
        };
        files::write_durably(&guard.path, 0o755, POLICY).map_err(io(guard.path.display()))?;
        Ok(guard)
    }

    /// Lets the next transaction stop the units of these packages.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn let_stop<'a>(
        &self,
        packages: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Failure> {
        let names: String = packages
            .into_iter()
            .map(|name| format!("{name}\n"))
            .collect();
        std::fs::write(&self.leaving, names).map_err(io(self.leaving.display()))
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
        let _ = std::fs::remove_file(&self.leaving);
    }
}

/// Makes the postponed starts of units not named by the plan: an enabled unit starts, and a running
/// unit restarts if its package asked for a restart. The end of a start is not awaited: a unit may
/// need the node's admission. A refused start is logged, because the stack does not name the unit.
/// Units without an answer stay in the list for the next run with a change. The image's own policy is
/// not asked: the boot would start the unit too.
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
    let postponed = Postponed::read(machine, &String::from_utf8_lossy(&text));
    // Names of the plan's units, and of the units started by this call: a unit may have an alias.
    let mut settled: BTreeSet<String> = plan
        .services
        .iter()
        .map(|service| units::unit_name(&service.name))
        .collect();
    let mut unanswered = String::new();
    for name in postponed.starts.union(&postponed.restarts) {
        let found = units::query(machine, std::slice::from_ref(name), cx);
        let unit = match found {
            Ok(units) => units.into_iter().next().unwrap_or_default(),
            Err(failure) if is_of_unit(&failure) => {
                cx.log(&format!("{name} has no answer: {}", failure.message));
                unanswered.push_str(&postponed.lines(name));
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let Some(verb) = postponed.choose_verb(name, &unit) else {
            continue;
        };
        if !unit.names.is_disjoint(&settled) {
            continue;
        }
        settled.extend(unit.names);
        cx.log(&format!("{verb} of {name}, as its package asked"));
        match services::begin(machine, cx, verb, name) {
            Err(failure) if is_of_unit(&failure) => {
                cx.log(&format!("{verb} of {name} failed: {}", failure.message));
            }
            begun => begun?,
        }
    }
    let list = machine.path(LIST);
    match unanswered.is_empty() {
        true => std::fs::remove_file(list),
        false => files::write_durably(&list, 0o644, unanswered.as_bytes()),
    }
    .map_err(io(LIST))
}

/// The units of a list.
struct Postponed {
    /// The units to start, if enabled: the units named, and all units of the packages named.
    starts: BTreeSet<String>,
    /// The units to restart, if running.
    restarts: BTreeSet<String>,
}

impl Postponed {
    fn read(machine: &Machine, list: &str) -> Self {
        let named = |kind: &'static str| {
            let lines = list.lines();
            lines.filter_map(move |line| line.strip_prefix(kind))
        };
        let list_units = |kind| -> BTreeSet<String> {
            // An init script may have a suffix, as in `hwclock.sh`.
            let units = named(kind).map(|unit| units::unit_name(unit.trim_end_matches(".sh")));
            // A template has no start of its own.
            units.filter(|unit| !unit.contains("@.")).collect()
        };
        let mut starts = list_units("unit ");
        let mut restarts = list_units("restart ");
        // A package that stops a unit and starts it again means a restart.
        restarts.extend(list_units("stopped ").intersection(&starts).cloned());
        let packages: BTreeSet<String> = named("package ").map(str::to_owned).collect();
        if !packages.is_empty() {
            let owned = units::units_of(machine, &packages).into_iter();
            starts.extend(owned.filter(|unit| !unit.contains("@.")));
        }
        Self { starts, restarts }
    }

    /// Returns the verb for a unit, if its state calls for one. A start may be in progress since an
    /// earlier run, with the former program. A failed unit gets the repaired program.
    fn choose_verb(&self, name: &str, unit: &Unit) -> Option<&'static str> {
        let is_enabled = matches!(
            unit.file.as_str(),
            "enabled" | "enabled-runtime" | "generated"
        );
        let restarts = self.restarts.contains(name);
        match unit.active.as_str() {
            "active" | "reloading" | "activating" if restarts => Some("restart"),
            "failed" if restarts && is_enabled => Some("restart"),
            "inactive" if self.starts.contains(name) && is_enabled => Some("start"),
            _ => None,
        }
    }

    /// Returns the lines of a unit for the list of the next run.
    fn lines(&self, unit: &str) -> String {
        let line = |kind: &str, units: &BTreeSet<String>| match units.contains(unit) {
            true => format!("{kind} {unit}\n"),
            false => String::new(),
        };
        line("unit", &self.starts) + &line("restart", &self.restarts)
    }
}

/// Whether systemd refused a unit. Any other failure is of the run.
fn is_of_unit(failure: &Failure) -> bool {
    matches!(
        failure.code,
        FailureCode::ServiceFailed | FailureCode::SystemdUnreadable
    )
}
