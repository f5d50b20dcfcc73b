//! Checks the file systems named by the stack's mount units: mounted, writable, and of the type in
//! the unit. Reads the kernel's own mount table, which stays readable while a file server is down.

use std::collections::BTreeMap;

use super::{Bench, Reading, scan};
use crate::machine::Machine;

/// Enough for the thousands of mounts on a container host.
const TABLE_MAX: u64 = 8 << 20;
const UNIT_MAX: u64 = 64 << 10;
/// Folders with units, in order of precedence.
const UNITS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/generator",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Returns the reason to skip the gate for a stack without mount units.
pub(super) fn absent(bench: &Bench<'_>) -> Option<String> {
    let stack = bench.plan.stack.as_ref()?;
    stack
        .mounts()
        .is_empty()
        .then(|| "the stack mounts no file system".into())
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let stack = bench
        .plan
        .stack
        .as_ref()
        .ok_or("no stack was given to compare with")?;
    let text = bench
        .machine
        .read("/proc/self/mounts", TABLE_MAX)
        .map_err(|failure| failure.message)?;
    let text = text.ok_or("there is no /proc/self/mounts")?;
    let text = String::from_utf8_lossy(&text);
    let table = table(&text)?;
    let wanted = stack.mounts();
    let mut reading = Reading::default();
    let (mut missing, mut differing, mut readonly) = (0, 0, 0);
    for (unit, place) in &wanted {
        let Some(found) = table.get(place) else {
            missing += 1;
            reading
                .notes
                .push(format!("{} is not mounted", scan::word(place)));
            continue;
        };
        let unit = unit_of(&bench.machine, unit)?;
        let (kind, source) = (scan::word(found.kind), scan::word(found.source));
        if !is_of(&unit.kind, found.kind) {
            differing += 1;
            reading.notes.push(format!(
                "{} is {kind} from {source}, wanted {}",
                scan::word(place),
                scan::word(&unit.kind)
            ));
        } else if found.readonly && !unit.readonly {
            readonly += 1;
            reading.notes.push(format!(
                "{} ({kind} from {source}) cannot be written",
                scan::word(place)
            ));
        } else {
            reading
                .notes
                .push(format!("{} is {kind} from {source}", scan::word(place)));
        }
    }
    reading.count("mounts.wanted", wanted.len());
    reading.count("mounts.missing", missing);
    reading.count("mounts.differing", differing);
    reading.count("mounts.readonly", readonly);
    Ok(reading)
}

/// A line of the mount table.
struct Mounted<'a> {
    source: &'a str,
    kind: &'a str,
    readonly: bool,
}

/// Returns the mounts by mount point. Of several mounts at a point, the last is visible and is
/// returned.
fn table(text: &str) -> Result<BTreeMap<String, Mounted<'_>>, String> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [source, place, kind, options, _, _] = fields[..] else {
            return Err(format!(
                "{:?} is no line of /proc/self/mounts",
                scan::word(line)
            ));
        };
        let readonly = options.split(',').any(|option| option == "ro");
        all.insert(
            plain(place),
            Mounted {
                source,
                kind,
                readonly,
            },
        );
    }
    match all.is_empty() {
        true => Err("/proc/self/mounts tells of nothing".into()),
        false => Ok(all),
    }
}

/// The mount table escapes blanks and backslashes in octal, such as `\040`.
fn plain(place: &str) -> String {
    let mut parts = place.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) if code.is_ascii() => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            _ => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

/// The kernel shows NFS version 4 as type `nfs4`, while a unit may say `nfs`.
fn is_of(wanted: &str, found: &str) -> bool {
    wanted == found || (wanted == "nfs" && found == "nfs4")
}

/// The settings read from a mount unit.
struct Unit {
    kind: String,
    readonly: bool,
}

fn unit_of(machine: &Machine, name: &str) -> Result<Unit, String> {
    for folder in UNITS {
        let path = format!("{folder}/{name}");
        let Some(bytes) = machine
            .read(&path, UNIT_MAX)
            .map_err(|failure| failure.message)?
        else {
            continue;
        };
        let text = String::from_utf8_lossy(&bytes);
        let said = |key: &str| {
            let mut lines = text
                .lines()
                .map(str::trim)
                .skip_while(|line| *line != "[Mount]")
                .skip(1);
            let own = std::iter::from_fn(|| lines.next().filter(|line| !line.starts_with('[')));
            own.filter_map(|line| {
                line.strip_prefix(key)?
                    .trim_start()
                    .strip_prefix('=')
                    .map(str::trim)
            })
            .last()
        };
        let kind = said("Type").filter(|kind| !kind.is_empty());
        let kind = kind
            .ok_or_else(|| format!("{path} says no Type"))?
            .to_owned();
        let readonly =
            said("Options").is_some_and(|options| options.split(',').any(|option| option == "ro"));
        return Ok(Unit { kind, readonly });
    }
    Err(format!("no file says of which type {name} must be"))
}
