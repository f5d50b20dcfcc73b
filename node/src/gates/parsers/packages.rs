//! Compares dpkg's record with the lock: every pinned package in the exact version, no
//! half-installed package, no unwanted package.

use super::{Bench, Reading};
use crate::converge::dpkg::{Database, State};

pub(super) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let stack = bench
        .plan
        .stack
        .as_ref()
        .ok_or("no stack was given to compare with")?;
    let database = Database::read(&bench.machine).map_err(|failure| failure.message)?;
    if database.is_empty() {
        return Err("dpkg has no record of any package".into());
    }
    let mut reading = Reading::default();
    let (mut differing, mut unfinished) = (0, 0);
    for package in &stack.packages {
        let found = database.find(&package.name, &package.arch);
        let version = found.map_or("absent", |found| found.version.as_str());
        unfinished += usize::from(found.is_some_and(|found| found.state == State::Unfinished));
        if version != package.version {
            differing += 1;
            reading.notes.push(format!(
                "{} is {version}, wanted {}",
                package.name, package.version
            ));
        }
    }
    if database.interrupted {
        unfinished = unfinished.max(1);
        reading
            .notes
            .push("dpkg was interrupted and did not finish".into());
    }
    let forbidden: Vec<&String> = stack
        .absent
        .iter()
        .filter(|name| database.has(name))
        .collect();
    reading.notes.extend(
        forbidden
            .iter()
            .map(|name| format!("{name} is installed and must not be")),
    );
    reading.count("packages.checked", stack.packages.len());
    reading.count("packages.differing", differing);
    reading.count("packages.unfinished", unfinished);
    reading.count("packages.forbidden", forbidden.len());
    Ok(reading)
}
