//! Container runtimes of the node: containerd must be active, podman has no service. No container is
//! started, because a start needs an image.

use crate::converge::dpkg::Database;
use crate::converge::units;
use crate::gates::parsers::{Bench, Reading, scan};

/// A runtime, by the names of its packages.
struct Runtime {
    packages: &'static [&'static str],
    service: Option<&'static str>,
}

const RUNTIMES: &[Runtime] = &[
    Runtime {
        packages: &["containerd", "containerd.io"],
        service: Some("containerd.service"),
    },
    Runtime {
        packages: &["podman"],
        service: None,
    },
];

/// Returns the reason to skip the gate on a node without a container runtime.
pub(in crate::gates::parsers) fn absent(bench: &Bench<'_>) -> Option<String> {
    // The record is unreadable or empty, and a runtime may be installed. The gate runs, and the
    // measurement fails with the reason.
    let found = installed(bench).ok()?;
    found
        .is_empty()
        .then(|| "neither containerd nor podman is installed".to_owned())
}

pub(in crate::gates::parsers) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let found = installed(bench)?;
    let mut reading = Reading::default();
    let mut stopped = 0;
    for service in found.iter().filter_map(|runtime| runtime.service) {
        let units = units::query(&bench.machine, &[service.to_owned()], bench.cx);
        let units = units.map_err(|failure| scan::word(&failure.message))?;
        if units.iter().any(|unit| unit.active != "active") {
            stopped += 1;
            reading.notes.push(format!("{service} is not active"));
        }
    }
    reading.count("containers.runtimes", found.len());
    reading.count("containers.stopped", stopped);
    Ok(reading)
}

fn installed(bench: &Bench<'_>) -> Result<Vec<&'static Runtime>, String> {
    let database = Database::read(&bench.machine);
    let database = database.map_err(|failure| scan::word(&failure.message))?;
    if database.is_empty() {
        return Err("dpkg has no record of any package".into());
    }
    let is_installed = |runtime: &&Runtime| runtime.packages.iter().any(|name| database.has(name));
    Ok(RUNTIMES.iter().filter(is_installed).collect())
}
