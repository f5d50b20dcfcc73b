//! systemd units: one question for all of them, then only what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_core::stacks::{ConvergePlan, ServiceItem};
use muster_core::wire::node::Failure;

use super::item::Item;
use super::machine::Machine;
use super::pending::Pending;
use crate::failure::{fatal, retryable};
use crate::job::JobContext;
use crate::tool;

const SHOW_TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than systemd's own 90 s for a start, so that its reason is heard rather than our kill.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(150);
/// Files that a package may own.
const LIST_MAX: u64 = 64 << 20;
/// What counts as enabled: units of the last three kinds cannot be enabled, and are started by what wants them.
const ENABLED: [&str; 6] = ["enabled", "enabled-runtime", "linked", "alias", "static", "generated"];

/// How a unit is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) load: String,
    pub(crate) active: String,
    pub(crate) file: String,
}

/// The plan's units against systemd's answer.
///
/// # Errors
/// `systemd_unreadable` when systemd does not answer.
pub(super) fn items(machine: &Machine, plan: &ConvergePlan, cx: &JobContext) -> Result<Vec<Item>, Failure> {
    let units = observe(machine, plan, cx)?;
    Ok(plan.services.iter().map(|service| item(service, units.get(&unit_name(&service.name)))).collect())
}

/// The same for a gate: each unit that is not as the plan wants it, in words.
///
/// # Errors
/// As [`items`].
pub(crate) fn differences(machine: &Machine, plan: &ConvergePlan, cx: &JobContext) -> Result<Vec<String>, Failure> {
    Ok(items(machine, plan, cx)?.iter().filter(|item| !item.fits).map(super::item::difference).collect())
}

fn item(service: &ServiceItem, unit: Option<&Unit>) -> Item {
    let word = |yes, word, other| if yes { word } else { other };
    let enabled = word(service.enabled, "enabled", "disabled");
    let wanted = format!("{enabled}, {}", word(service.running, "active", "inactive"));
    let found = unit.filter(|unit| unit.load != "not-found").map(|unit| {
        let enabled = if is_enabled(service, unit) == service.enabled { enabled } else { &unit.file };
        let active = match (unit.active.as_str(), service.running) {
            // A unit that failed is not running, and that is no peace either.
            ("inactive", false) => "inactive",
            (active, _) => active,
        };
        format!("{enabled}, {active}")
    });
    // A unit that must neither run nor start may as well not exist.
    let gone = found.is_none() && !service.enabled && !service.running;
    let item = Item::new(format!("service {}", service.name), wanted, found);
    Item { fits: item.fits || gone, ..item }
}

/// A static unit is neither; it is whatever was asked.
fn is_enabled(service: &ServiceItem, unit: &Unit) -> bool {
    match unit.file.as_str() {
        "static" | "generated" | "alias" | "transient" | "indirect" => service.enabled,
        file => ENABLED.contains(&file),
    }
}

/// Asks systemd about all units of the plan at once.
///
/// # Errors
/// `systemd_unreadable`.
pub(crate) fn observe(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<BTreeMap<String, Unit>, Failure> {
    if plan.services.is_empty() {
        return Ok(BTreeMap::new());
    }
    let names: Vec<String> = plan.services.iter().map(|service| unit_name(&service.name)).collect();
    let mut argv = vec!["systemctl", "show", "--property=Id,LoadState,ActiveState,UnitFileState", "--"];
    argv.extend(names.iter().map(String::as_str));
    let answer = machine.output(cx, "systemd_unreadable", &argv, SHOW_TIMEOUT)?;
    let units = parse(&String::from_utf8_lossy(&answer));
    match units.len() == names.len() {
        // In the order asked; the Id of an alias is another name.
        true => Ok(names.into_iter().zip(units).collect()),
        false => Err(fatal("systemd_unreadable", format!("asked for {} units, told of {}", names.len(), units.len()))),
    }
}

fn parse(answer: &str) -> Vec<Unit> {
    let stanzas = answer.split("\n\n").filter(|stanza| !stanza.trim().is_empty());
    stanzas
        .map(|stanza| {
            let value = |name: &str| {
                let line = stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
                line.unwrap_or_default().to_owned()
            };
            Unit { load: value("LoadState"), active: value("ActiveState"), file: value("UnitFileState") }
        })
        .collect()
}

/// Enables, disables, starts, stops, and restarts what has changed under it.
///
/// # Errors
/// `service_failed` with the end of the unit's log.
pub(super) fn apply(machine: &Machine, plan: &ConvergePlan, pending: &Pending, cx: &JobContext) -> Result<(), Failure> {
    if plan.services.is_empty() {
        return Ok(());
    }
    let unit_files = |path: &String| path.starts_with("/etc/systemd/system/");
    if !pending.packages.is_empty() || pending.paths.iter().any(unit_files) {
        systemctl(machine, cx, &["daemon-reload"], None)?;
    }
    let units = observe(machine, plan, cx)?;
    let owned = units_of(machine, &pending.packages);
    for service in &plan.services {
        let name = unit_name(&service.name);
        let unit = units.get(&name).cloned().unwrap_or_default();
        if is_enabled(service, &unit) != service.enabled && unit.load != "not-found" {
            let verb = if service.enabled { "enable" } else { "disable" };
            systemctl(machine, cx, &[verb, "--", &name], Some(&name))?;
        }
        let stale = owned.contains(&name) || service.restart_on.iter().any(|path| pending.paths.contains(path));
        let running = matches!(unit.active.as_str(), "active" | "reloading" | "activating");
        let verb = match (service.running, running, stale) {
            (true, false, _) => "start",
            (true, true, true) => "restart",
            (false, true, _) => "stop",
            (true, true, false) | (false, false, _) => continue,
        };
        cx.progress(&format!("{verb}s {name}"), None, None, None);
        if verb == "start" && unit.active == "failed" {
            // A unit that failed often may be held back by its start limit, also when the cause is mended.
            systemctl(machine, cx, &["reset-failed", "--", &name], Some(&name))?;
        }
        systemctl(machine, cx, &[verb, "--", &name], Some(&name))?;
    }
    Ok(())
}

fn systemctl(machine: &Machine, cx: &JobContext, arguments: &[&str], unit: Option<&str>) -> Result<(), Failure> {
    let argv: Vec<&str> = ["systemctl", "--no-ask-password"].into_iter().chain(arguments.iter().copied()).collect();
    machine.output(cx, "service_failed", &argv, CHANGE_TIMEOUT).map(drop).map_err(|failure| {
        let Some(unit) = unit.filter(|_| failure.code == "service_failed") else { return failure };
        let journal = ["journalctl", "--unit", unit, "--lines", "12", "--no-pager", "--output", "cat"];
        let log = machine.output(cx, "service_failed", &journal, SHOW_TIMEOUT).unwrap_or_default();
        retryable("service_failed", format!("{}; its log ends: {}", failure.message, tool::tail(&log, 1200)))
    })
}

/// The units that packages own, from dpkg's lists of their files.
fn units_of(machine: &Machine, packages: &BTreeSet<String>) -> BTreeSet<String> {
    let folder = "/var/lib/dpkg/info";
    let names = std::fs::read_dir(machine.path(folder)).into_iter().flatten().flatten();
    let lists = names.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| {
        // `munge.list`, `libc6:amd64.list`
        name.strip_suffix(".list").is_some_and(|name| packages.contains(name.split(':').next().unwrap_or(name)))
    });
    let mut units = BTreeSet::new();
    for list in lists {
        let bytes = machine.read(&format!("{folder}/{list}"), LIST_MAX).ok().flatten().unwrap_or_default();
        for path in String::from_utf8_lossy(&bytes).lines() {
            if let Some((folder, name)) = path.rsplit_once('/')
                && folder.ends_with("/systemd/system")
            {
                units.insert(name.to_owned());
            }
        }
    }
    units
}

/// systemd's own reading: a name without a suffix is a service.
fn unit_name(name: &str) -> String {
    let kinds = [
        ".service",
        ".socket",
        ".timer",
        ".target",
        ".mount",
        ".path",
        ".slice",
        ".scope",
        ".swap",
        ".automount",
        ".device",
    ];
    match kinds.iter().any(|kind| name.ends_with(kind)) {
        true => name.to_owned(),
        false => format!("{name}.service"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(enabled: bool, running: bool) -> ServiceItem {
        ServiceItem { name: "munge".into(), enabled, running, restart_on: vec![] }
    }

    #[test]
    fn a_failed_or_missing_unit_fits_no_wish_to_run() {
        let unit = |active: &str, file: &str| Unit { load: "loaded".into(), active: active.into(), file: file.into() };
        assert!(item(&service(true, true), Some(&unit("active", "enabled"))).fits);
        assert!(item(&service(true, true), Some(&unit("active", "static"))).fits);
        assert!(!item(&service(true, true), Some(&unit("failed", "enabled"))).fits);
        assert!(!item(&service(true, true), Some(&unit("active", "disabled"))).fits);
        assert!(!item(&service(true, true), None).fits);
        assert!(item(&service(false, false), None).fits, "what must not run may be absent");
        assert!(item(&service(false, false), Some(&unit("inactive", "masked"))).fits);
        assert!(!item(&service(false, false), Some(&unit("active", "disabled"))).fits);
    }

    #[test]
    fn stanzas_are_told_apart() {
        let answer = "Id=a.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n\n\
                      Id=b.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n";
        let units = parse(answer);
        assert_eq!(units.len(), 2);
        assert_eq!((units[0].active.as_str(), units[1].load.as_str()), ("active", "not-found"));
    }
}
