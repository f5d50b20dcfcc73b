//! Services of the stack: one query for all units, then changes only for differing units.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::stacks::{ConvergePlan, ServiceItem};
use muster_core::wire::node::{Failure, FailureCode};

use super::item::Item;
use super::pending::Pending;
use super::units::{SHOW_TIMEOUT, UNIT_TIMEOUT, Unit, query, template, unit_name, units_of};
use crate::failure::retryable;
use crate::job::JobContext;
use crate::machine::Machine;
use crate::tool;

/// Time beyond systemd's own limit, so that systemd reports its reason before muster-node kills
/// systemctl.
const MARGIN: Duration = Duration::from_secs(60);
/// Folder of the administrator's unit files and drop-ins.
const UNITS: &str = "/etc/systemd/system/";
/// States that count as enabled. Units of the last three states cannot be enabled; other units
/// start such a unit.
const ENABLED: [&str; 6] = [
    "enabled",
    "enabled-runtime",
    "linked",
    "alias",
    "static",
    "generated",
];

/// Compares the plan's units with systemd's answer. While a reboot is due (`held`), units not yet
/// started wait for the reboot.
///
/// # Errors
/// `systemd_unreadable` when systemd does not answer.
pub(super) fn items(
    machine: &Machine,
    plan: &ConvergePlan,
    held: bool,
    cx: &JobContext,
) -> Result<Vec<Item>, Failure> {
    let units = observe(machine, plan, cx)?;
    let of = |service: &ServiceItem| {
        let unit = units.get(&unit_name(&service.name));
        Item {
            by_reboot: held && only_not_started(service, unit),
            ..item(service, unit)
        }
    };
    Ok(plan.services.iter().map(of).collect())
}

/// Whether the unit only lacks its start, the part held back by a due reboot.
fn only_not_started(service: &ServiceItem, unit: Option<&Unit>) -> bool {
    let there = unit.filter(|unit| unit.load != "not-found");
    service.running && there.is_some_and(|unit| is_enabled(service, unit) == service.enabled)
}

/// Returns, for a gate, a description of each unit differing from the plan.
///
/// # Errors
/// As [`items`].
pub(crate) fn differences(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<Vec<String>, Failure> {
    Ok(items(machine, plan, false, cx)?
        .iter()
        .filter(|item| !item.fits)
        .map(super::item::difference)
        .collect())
}

fn item(service: &ServiceItem, unit: Option<&Unit>) -> Item {
    let word = |yes, word, other| if yes { word } else { other };
    let enabled = word(service.enabled, "enabled", "disabled");
    let wanted = format!("{enabled}, {}", word(service.running, "active", "inactive"));
    let found = unit.filter(|unit| unit.load != "not-found").map(|unit| {
        let enabled = if is_enabled(service, unit) == service.enabled {
            enabled
        } else {
            &unit.file
        };
        let active = match (unit.active.as_str(), service.running) {
            // A failed unit is not running, but differs from an inactive unit.
            ("inactive", false) => "inactive",
            (active, _) => active,
        };
        format!("{enabled}, {active}")
    });
    // A missing unit is fine when the unit must neither run nor start.
    let gone = found.is_none() && !service.enabled && !service.running;
    let item = Item::new(format!("service {}", service.name), wanted, found);
    Item {
        fits: item.fits || gone,
        ..item
    }
}

/// Whether the unit counts as enabled. A static unit is neither enabled nor disabled and matches
/// either request.
fn is_enabled(service: &ServiceItem, unit: &Unit) -> bool {
    match unit.file.as_str() {
        "static" | "generated" | "alias" | "transient" | "indirect" => service.enabled,
        file => ENABLED.contains(&file),
    }
}

/// Queries systemd for all units of the plan at once.
///
/// # Errors
/// `systemd_unreadable`.
fn observe(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<BTreeMap<String, Unit>, Failure> {
    let names: Vec<String> = plan
        .services
        .iter()
        .map(|service| unit_name(&service.name))
        .collect();
    let units = query(machine, &names, cx)?;
    Ok(names.into_iter().zip(units).collect())
}

/// Lets systemd read changed unit files.
///
/// # Errors
/// `service_failed`.
pub(super) fn reload(
    machine: &Machine,
    plan: &ConvergePlan,
    pending: &Pending,
    cx: &JobContext,
) -> Result<(), Failure> {
    let unit_files = pending.paths.iter().any(|path| path.starts_with(UNITS));
    if unit_files || !(pending.packages.is_empty() || plan.services.is_empty()) {
        systemctl(machine, cx, &["daemon-reload"], None)?;
    }
    Ok(())
}

/// Enables, disables, starts, stops, and restarts units with changed files or packages. While a
/// reboot is due, units are neither started nor restarted. A unit of a new driver fails against the
/// old driver, and the boot starts all units again.
///
/// # Errors
/// `service_failed` with the end of the unit's log.
pub(super) fn apply(
    machine: &Machine,
    plan: &ConvergePlan,
    pending: &mut Pending,
    held: bool,
    cx: &JobContext,
) -> Result<(), Failure> {
    if plan.services.is_empty() {
        return Ok(());
    }
    let units = observe(machine, plan, cx)?;
    let owned = units_of(machine, &pending.packages);
    for service in &plan.services {
        let name = unit_name(&service.name);
        let unit = units.get(&name).cloned().unwrap_or_default();
        if (service.enabled || service.running) && unit.file.starts_with("masked") {
            // The unit was masked by a person or by its package; enabling and starting would fail
            // each time.
            cx.log(&format!("unmasks {name}, which the stack wants"));
            let runtime = (unit.file == "masked-runtime").then_some("--runtime");
            let arguments: Vec<&str> = ["unmask"]
                .into_iter()
                .chain(runtime)
                .chain(["--", &name])
                .collect();
            systemctl(machine, cx, &arguments, Some(&name))?;
        }
        if is_enabled(service, &unit) != service.enabled && unit.load != "not-found" {
            let verb = if service.enabled { "enable" } else { "disable" };
            systemctl(machine, cx, &[verb, "--", &name], Some(&name))?;
        }
        let stale = unit
            .names
            .iter()
            .any(|name| owned.contains(name) || owned.contains(&template(name)))
            || service
                .restart_on
                .iter()
                .any(|path| pending.paths.contains(path))
            || pending.paths.iter().any(|path| is_read_by(path, &unit));
        let joins = unit.active == "activating" && pending.begun.contains(&name);
        let running = matches!(unit.active.as_str(), "active" | "reloading" | "activating");
        let verb = match (service.running, running, stale) {
            (true, false, _) | (true, true, true) if held => continue,
            // The unit has been starting for these changes since an earlier run; this run waits for
            // the end of the start.
            (true, false, _) | (true, true, true) if joins || !running => "start",
            (true, _, true) => "restart",
            (false, true, _) => "stop",
            (true, _, false) | (false, false, _) => continue,
        };
        cx.progress(
            &format!("running systemctl {verb} {name}"),
            None,
            None,
            None,
        );
        if verb == "start" && unit.active == "failed" {
            // A unit that failed often may be blocked by its start limit, even after the repair of
            // the cause.
            systemctl(machine, cx, &["reset-failed", "--", &name], Some(&name))?;
        }
        if verb != "stop" && pending.begun.insert(name.clone()) {
            pending.store(machine)?;
        }
        change(machine, cx, &[verb, "--", &name], Some(&name), unit.limit)?;
    }
    Ok(())
}

/// Begins the start or restart of a unit, and does not await the end.
///
/// # Errors
/// `service_failed` with the end of the unit's log.
pub(super) fn begin(
    machine: &Machine,
    cx: &JobContext,
    verb: &str,
    unit: &str,
) -> Result<(), Failure> {
    systemctl(machine, cx, &[verb, "--no-block", "--", unit], Some(unit))
}

/// Stops and disables the unit of a unit file about to be removed with the stack.
///
/// # Errors
/// `service_failed` with the end of the unit's log.
pub(super) fn let_go(
    machine: &Machine,
    plan: &ConvergePlan,
    path: &str,
    cx: &JobContext,
) -> Result<(), Failure> {
    let unit = path
        .strip_prefix(UNITS)
        .filter(|name| !name.contains('/') && unit_name(name) == *name);
    let wanted = |unit: &str| {
        plan.services
            .iter()
            .any(|service| unit_name(&service.name) == unit)
    };
    match unit.filter(|unit| !wanted(unit) && !unit.contains('@') && machine.path(path).exists()) {
        Some(unit) => systemctl(machine, cx, &["disable", "--now", "--", unit], Some(unit)),
        None => Ok(()),
    }
}

/// Whether the file is the unit's unit file, its drop-in, or its environment file.
fn is_read_by(path: &str, unit: &Unit) -> bool {
    let own = path
        .strip_prefix(UNITS)
        .map(|rest| rest.split('/').next().unwrap_or(rest));
    let own = own.map(|first| first.strip_suffix(".d").unwrap_or(first));
    let is_own = |own: &str| {
        unit.names
            .iter()
            .any(|name| own == name || own == template(name))
    };
    own.is_some_and(is_own) || unit.environment.iter().any(|read| read == path)
}

fn systemctl(
    machine: &Machine,
    cx: &JobContext,
    arguments: &[&str],
    unit: Option<&str>,
) -> Result<(), Failure> {
    change(machine, cx, arguments, unit, Some(2 * UNIT_TIMEOUT))
}

/// Runs systemctl within systemd's own limit for the unit. For a unit without a limit, the job's
/// deadline applies.
fn change(
    machine: &Machine,
    cx: &JobContext,
    arguments: &[&str],
    unit: Option<&str>,
    limit: Option<Duration>,
) -> Result<(), Failure> {
    let argv: Vec<&str> = ["systemctl", "--no-ask-password"]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    let limit = limit.map_or(Duration::MAX, |limit| limit.saturating_add(MARGIN));
    machine
        .output(cx, FailureCode::ServiceFailed, &argv, limit)
        .map(drop)
        .map_err(|failure| {
            let slow = failure.code == FailureCode::ToolTimeout;
            let Some(unit) = unit.filter(|_| slow || failure.code == FailureCode::ServiceFailed)
            else {
                return failure;
            };
            let failure = if slow {
                retryable(
                    FailureCode::ToolTimeout,
                    format!("{unit}: {}", failure.message),
                )
            } else {
                failure
            };
            let journal = [
                "journalctl",
                "--unit",
                unit,
                "--lines",
                "12",
                "--no-pager",
                "--output",
                "cat",
            ];
            let log = machine
                .output(cx, FailureCode::ServiceFailed, &journal, SHOW_TIMEOUT)
                .unwrap_or_default();
            retryable(
                failure.code,
                format!(
                    "{}; the unit's log ends with: {}",
                    failure.message,
                    tool::tail(&log, 1200)
                ),
            )
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn service(enabled: bool, running: bool) -> ServiceItem {
        ServiceItem {
            name: "munge".into(),
            enabled,
            running,
            restart_on: vec![],
        }
    }

    #[test]
    fn a_failed_or_missing_unit_fits_no_request_to_run() {
        let unit = |active: &str, file: &str| Unit {
            load: "loaded".into(),
            active: active.into(),
            file: file.into(),
            ..Unit::default()
        };
        assert!(item(&service(true, true), Some(&unit("active", "enabled"))).fits);
        assert!(item(&service(true, true), Some(&unit("active", "static"))).fits);
        assert!(!item(&service(true, true), Some(&unit("failed", "enabled"))).fits);
        assert!(!item(&service(true, true), Some(&unit("active", "disabled"))).fits);
        assert!(!item(&service(true, true), None).fits);
        assert!(
            item(&service(false, false), None).fits,
            "what must not run may be absent"
        );
        assert!(item(&service(false, false), Some(&unit("inactive", "masked"))).fits);
        assert!(!item(&service(false, false), Some(&unit("active", "disabled"))).fits);
    }

    #[test]
    fn a_unit_reads_its_own_files_and_nobody_elses() {
        let named = |name: &str| Unit {
            names: BTreeSet::from([name.to_owned()]),
            ..Unit::default()
        };
        let unit = Unit {
            environment: vec!["/etc/default/slurmd".into()],
            ..named("slurmd.service")
        };
        let reads = |path: &str| is_read_by(path, &unit);
        assert!(
            reads("/etc/systemd/system/slurmd.service")
                && reads("/etc/systemd/system/slurmd.service.d/10-a.conf")
        );
        assert!(reads("/etc/default/slurmd"));
        assert!(
            !reads("/etc/default/munge") && !reads("/etc/systemd/system/munge.service.d/10-a.conf")
        );
        let getty = |path: &str| is_read_by(path, &named("getty@tty1.service"));
        assert!(
            getty("/etc/systemd/system/getty@.service.d/a.conf")
                && getty("/etc/systemd/system/getty@tty1.service")
        );
        assert!(!getty("/etc/systemd/system/getty@tty2.service.d/a.conf"));
    }
}
