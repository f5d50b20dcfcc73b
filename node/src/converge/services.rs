//! systemd units: one question for all of them, then only what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_core::stacks::{ConvergePlan, ServiceItem};
use muster_core::wire::node::{Failure, FailureCode};

use super::item::Item;
use super::machine::Machine;
use super::pending::Pending;
use crate::failure::{fatal, retryable};
use crate::job::JobContext;
use crate::tool;

const SHOW_TIMEOUT: Duration = Duration::from_secs(60);
/// systemd's own for a start and for a stop, where a unit says nothing else.
const UNIT_TIMEOUT: Duration = Duration::from_secs(90);
/// Longer than systemd's own, so that its reason is heard rather than our kill.
const MARGIN: Duration = Duration::from_secs(60);
/// What is asked of each unit.
const PROPERTIES: &str = "--property=Id,Names,LoadState,ActiveState,UnitFileState,EnvironmentFiles,TimeoutStartUSec,TimeoutStopUSec";
/// Where unit files and drop-ins of the administrator are.
const UNITS: &str = "/etc/systemd/system/";
/// Files that a package may own.
const LIST_MAX: u64 = 64 << 20;
/// What counts as enabled: units of the last three kinds cannot be enabled, and are started by what wants them.
const ENABLED: [&str; 6] = [
    "enabled",
    "enabled-runtime",
    "linked",
    "alias",
    "static",
    "generated",
];

/// How a unit is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Its own and its aliases.
    names: BTreeSet<String>,
    /// How long systemd may stop and start it; nothing where it has no limit.
    limit: Option<Duration>,
    pub(crate) load: String,
    pub(crate) active: String,
    pub(crate) file: String,
    /// Files that its environment is read from when it starts.
    pub(crate) environment: Vec<String>,
}

/// The plan's units against systemd's answer. Where a reboot is due, those that are not started wait for it.
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

/// Whether nothing lacks but that it runs: what a due reboot holds back.
fn only_not_started(service: &ServiceItem, unit: Option<&Unit>) -> bool {
    let there = unit.filter(|unit| unit.load != "not-found");
    service.running && there.is_some_and(|unit| is_enabled(service, unit) == service.enabled)
}

/// The same for a gate: each unit that is not as the plan wants it, in words.
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
            // A unit that failed is not running, and that is no peace either.
            ("inactive", false) => "inactive",
            (active, _) => active,
        };
        format!("{enabled}, {active}")
    });
    // A unit that must neither run nor start may as well not exist.
    let gone = found.is_none() && !service.enabled && !service.running;
    let item = Item::new(format!("service {}", service.name), wanted, found);
    Item {
        fits: item.fits || gone,
        ..item
    }
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
    let names: Vec<String> = plan
        .services
        .iter()
        .map(|service| unit_name(&service.name))
        .collect();
    let mut argv = vec!["systemctl", "show", PROPERTIES, "--"];
    argv.extend(names.iter().map(String::as_str));
    let answer = machine.output(cx, FailureCode::SystemdUnreadable, &argv, SHOW_TIMEOUT)?;
    let units = parse(&String::from_utf8_lossy(&answer));
    match units.len() == names.len() {
        // In the order asked; the Id of an alias is another name.
        true => Ok(names.into_iter().zip(units).collect()),
        false => Err(fatal(
            FailureCode::SystemdUnreadable,
            format!("asked for {} units, told of {}", names.len(), units.len()),
        )),
    }
}

fn parse(answer: &str) -> Vec<Unit> {
    let stanzas = answer
        .split("\n\n")
        .filter(|stanza| !stanza.trim().is_empty());
    stanzas
        .map(|stanza| {
            let value = |name: &str| {
                let line = stanza
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
                line.unwrap_or_default().to_owned()
            };
            // `EnvironmentFiles=/etc/default/slurmd (ignore_errors=yes)`, a line for each.
            let files = stanza
                .lines()
                .filter_map(|line| line.strip_prefix("EnvironmentFiles="));
            let environment = files
                .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
                .collect();
            let names = format!("{} {}", value("Id"), value("Names"));
            let names = names.split_whitespace().map(str::to_owned).collect();
            let limit = span(&value("TimeoutStartUSec")).zip(span(&value("TimeoutStopUSec")));
            let limit = limit.map(|(start, stop)| start.saturating_add(stop));
            let (load, active, file) = (
                value("LoadState"),
                value("ActiveState"),
                value("UnitFileState"),
            );
            Unit {
                names,
                limit,
                load,
                active,
                file,
                environment,
            }
        })
        .collect()
}

/// `1min 30s`, as systemd writes a span of time (systemd.time(7)); nothing for `infinity`.
fn span(text: &str) -> Option<Duration> {
    if text == "infinity" {
        return None;
    }
    let seconds = |word: &str| {
        let (number, unit) = word.split_at(word.find(|c: char| c.is_ascii_alphabetic())?);
        let seconds = match unit {
            "us" | "ms" => return Some(1),
            "s" => 1,
            "min" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return None,
        };
        Some(number.parse::<f64>().ok()?.ceil() as u64 * seconds)
    };
    let told: Option<Vec<u64>> = text.split_whitespace().map(seconds).collect();
    Some(
        told.filter(|told| !told.is_empty())
            .map_or(UNIT_TIMEOUT, |told| Duration::from_secs(told.iter().sum())),
    )
}

/// Enables, disables, starts, stops, and restarts what has changed under it. While a reboot is due nothing is started or restarted: a unit of a new
/// driver fails against the old one, and the boot starts all of them anew.
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
    let unit_files = pending.paths.iter().any(|path| path.starts_with(UNITS));
    if unit_files || !(pending.packages.is_empty() || plan.services.is_empty()) {
        systemctl(machine, cx, &["daemon-reload"], None)?;
    }
    if plan.services.is_empty() {
        return Ok(());
    }
    let units = observe(machine, plan, cx)?;
    let owned = units_of(machine, &pending.packages);
    for service in &plan.services {
        let name = unit_name(&service.name);
        let unit = units.get(&name).cloned().unwrap_or_default();
        if (service.enabled || service.running) && unit.file.starts_with("masked") {
            // Somebody masked it, or its package did; enabling and starting would fail each time.
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
            // It is starting for these very changes since a run that did not wait for its end: this one does.
            (true, false, _) | (true, true, true) if joins || !running => "start",
            (true, _, true) => "restart",
            (false, true, _) => "stop",
            (true, _, false) | (false, false, _) => continue,
        };
        cx.progress(&format!("{verb}s {name}"), None, None, None);
        if verb == "start" && unit.active == "failed" {
            // A unit that failed often may be held back by its start limit, also when the cause is mended.
            systemctl(machine, cx, &["reset-failed", "--", &name], Some(&name))?;
        }
        if verb != "stop" && pending.begun.insert(name.clone()) {
            pending.store(machine)?;
        }
        change(machine, cx, &[verb, "--", &name], Some(&name), unit.limit)?;
    }
    Ok(())
}

/// Before a unit file goes that left the stack: its unit stops, and nothing starts it any more.
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

/// Whether a unit has this file for its unit file, a drop-in of its own, or its environment.
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

/// `getty@tty1.service` is of `getty@.service`; any other name is its own.
fn template(name: &str) -> String {
    match (name.split_once('@'), name.rsplit_once('.')) {
        (Some((stem, _)), Some((_, kind))) => format!("{stem}@.{kind}"),
        _ => name.to_owned(),
    }
}

fn systemctl(
    machine: &Machine,
    cx: &JobContext,
    arguments: &[&str],
    unit: Option<&str>,
) -> Result<(), Failure> {
    change(machine, cx, arguments, unit, Some(2 * UNIT_TIMEOUT))
}

/// Within the time that systemd itself may take for the unit; where that has no limit, the job's counts.
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
                    "{}; its log ends: {}",
                    failure.message,
                    tool::tail(&log, 1200)
                ),
            )
        })
}

/// The units that packages own, from dpkg's lists of their files.
fn units_of(machine: &Machine, packages: &BTreeSet<String>) -> BTreeSet<String> {
    let folder = "/var/lib/dpkg/info";
    let names = std::fs::read_dir(machine.path(folder))
        .into_iter()
        .flatten()
        .flatten();
    let lists = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            // `munge.list`, `libc6:amd64.list`
            name.strip_suffix(".list")
                .is_some_and(|name| packages.contains(name.split(':').next().unwrap_or(name)))
        });
    let mut units = BTreeSet::new();
    for list in lists {
        let bytes = machine
            .read(&format!("{folder}/{list}"), LIST_MAX)
            .ok()
            .flatten()
            .unwrap_or_default();
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
        ServiceItem {
            name: "munge".into(),
            enabled,
            running,
            restart_on: vec![],
        }
    }

    #[test]
    fn a_failed_or_missing_unit_fits_no_wish_to_run() {
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

    #[test]
    fn stanzas_are_told_apart() {
        let answer = "Id=a.service\nNames=b.service a.service\nTimeoutStartUSec=15min 1.5s\nTimeoutStopUSec=1min 30s\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n\
                      EnvironmentFiles=/etc/default/a (ignore_errors=yes)\nEnvironmentFiles=/etc/b (ignore_errors=no)\n\n\
                      Id=b.service\nTimeoutStartUSec=infinity\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n";
        let units = parse(answer);
        assert_eq!(units.len(), 2);
        // The form of the lines is that of systemd's own `systemctl show` (src/systemctl/systemctl-show.c).
        assert_eq!(units[0].environment, ["/etc/default/a", "/etc/b"]);
        assert_eq!(
            (units[0].active.as_str(), units[1].load.as_str()),
            ("active", "not-found")
        );
        assert_eq!(
            (units[0].limit, units[1].limit),
            (Some(Duration::from_secs(15 * 60 + 2 + 90)), None)
        );
        assert_eq!((span(""), units[0].names.len()), (Some(UNIT_TIMEOUT), 2));
    }
}
