//! systemd units as systemd and dpkg describe them.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::fatal;
use crate::job::JobContext;
use crate::machine::Machine;

pub(super) const SHOW_TIMEOUT: Duration = Duration::from_secs(60);
/// systemd's default limit for a start and for a stop, for a unit without its own limit.
pub(super) const UNIT_TIMEOUT: Duration = Duration::from_secs(90);
/// The properties queried for each unit.
const PROPERTIES: &str = "--property=Id,Names,LoadState,ActiveState,UnitFileState,EnvironmentFiles,TimeoutStartUSec,TimeoutStopUSec";
/// Longest file list of a package, in bytes.
const LIST_MAX: u64 = 64 << 20;

/// The state of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The unit's own name and its aliases.
    pub(super) names: BTreeSet<String>,
    /// Longest stop plus start allowed by systemd; `None` without a limit.
    pub(super) limit: Option<Duration>,
    pub(super) load: String,
    pub(crate) active: String,
    pub(super) file: String,
    /// Environment files read at the unit's start.
    pub(super) environment: Vec<String>,
}

/// Queries systemd for units, in the order of the names.
///
/// # Errors
/// `systemd_unreadable`.
pub(crate) fn query(
    machine: &Machine,
    names: &[String],
    cx: &JobContext,
) -> Result<Vec<Unit>, Failure> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut argv = vec!["systemctl", "show", PROPERTIES, "--"];
    argv.extend(names.iter().map(String::as_str));
    let answer = machine.output(cx, FailureCode::SystemdUnreadable, &argv, SHOW_TIMEOUT)?;
    let units = parse(&String::from_utf8_lossy(&answer));
    match units.len() == names.len() {
        // Units are in the order of the query; the Id of an alias is another name.
        true => Ok(units),
        false => Err(fatal(
            FailureCode::SystemdUnreadable,
            format!(
                "systemctl show was asked for {} units and described {}",
                names.len(),
                units.len()
            ),
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

/// Parses `1min 30s`, systemd's form of a time span (systemd.time(7)); `None` for `infinity`.
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

/// Returns the template of a unit: `getty@.service` for `getty@tty1.service`, otherwise the same
/// name.
pub(super) fn template(name: &str) -> String {
    match (name.split_once('@'), name.rsplit_once('.')) {
        (Some((stem, _)), Some((_, kind))) => format!("{stem}@.{kind}"),
        _ => name.to_owned(),
    }
}

/// Returns the units owned by packages, from dpkg's file lists.
pub(super) fn units_of(machine: &Machine, packages: &BTreeSet<String>) -> BTreeSet<String> {
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

/// Appends `.service` to a name without a suffix, as systemd does.
pub(super) fn unit_name(name: &str) -> String {
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

    #[test]
    fn stanzas_are_told_apart() {
        let answer = "Id=a.service\nNames=b.service a.service\nTimeoutStartUSec=15min 1.5s\nTimeoutStopUSec=1min 30s\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n\
                      EnvironmentFiles=/etc/default/a (ignore_errors=yes)\nEnvironmentFiles=/etc/b (ignore_errors=no)\n\n\
                      Id=b.service\nTimeoutStartUSec=infinity\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n";
        let units = parse(answer);
        assert_eq!(units.len(), 2);
        // The form of the lines is taken from `systemctl show`
        // (src/systemctl/systemctl-show.c).
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
