//! Versions of the driver's parts: the module's file, nvidia-smi, and the file behind
//! `libcuda.so.1`. None of the three needs a GPU.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_core::wire::node::Failure;

use super::ldconfig;
use super::module::{self, Found};
use super::version::is_driver_version;
use crate::gates::parsers::{Bench, Reading, scan};
use crate::machine::Machine;
use crate::tool::{Call, ToolError};

const TIMEOUT: Duration = Duration::from_secs(30);
const LIBRARY: &str = "libcuda.so.1";
/// The first line of `nvidia-smi -h`, before the version.
const HEAD: &str = "NVIDIA System Management Interface -- v";
/// Longest chain of links from a library's name to the file.
const LINKS_MAX: usize = 8;

/// A part of the driver.
struct Part {
    metric: &'static str,
    name: &'static str,
    /// `None` for an absent part.
    version: Option<String>,
}

pub(in crate::gates::parsers) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let parts = [
        Part {
            metric: "driver.module",
            name: "the module",
            version: module_version(bench)?,
        },
        Part {
            metric: "driver.tool",
            name: "nvidia-smi",
            version: tool_version(bench)?,
        },
        Part {
            metric: "driver.libcuda",
            name: LIBRARY,
            version: library_version(bench)?,
        },
    ];
    Ok(compare(&parts))
}

fn compare(parts: &[Part]) -> Reading {
    let mut reading = Reading::default();
    let mut versions = BTreeSet::new();
    for part in parts {
        let version = part.version.as_deref();
        let shown = version.map_or("missing".to_owned(), scan::word);
        reading.notes.push(format!("{}: {shown}", part.name));
        if let Some(version) = version {
            reading.add_word(part.metric, "", version);
            versions.insert(version);
        }
    }
    let missing = parts.iter().filter(|part| part.version.is_none());
    reading.count("driver.missing", missing.count());
    reading.count("driver.versions", versions.len());
    reading
}

fn module_version(bench: &Bench<'_>) -> Result<Option<String>, String> {
    match module::find_file(bench)? {
        Found::File(file) => module::version(bench, &file),
        Found::Missing(_) => Ok(None),
    }
}

/// Returns the version of nvidia-smi. With other arguments than `-h` the tool needs the driver.
fn tool_version(bench: &Bench<'_>) -> Result<Option<String>, String> {
    let call = Call {
        argv: &["nvidia-smi", "-h"],
        timeout: Some(TIMEOUT),
        ..Call::default()
    };
    let done = match bench.machine.run(bench.cx, &call) {
        Ok(done) => done,
        Err(ToolError::Missing(_)) => return Ok(None),
        Err(error) => return Err(scan::word(&Failure::from(error).message)),
    };
    let said = String::from_utf8_lossy(&done.stdout);
    if !done.status.success() {
        let reason = [&*said, &*String::from_utf8_lossy(&done.stderr)].concat();
        let reason = scan::word(&reason);
        return Err(format!(
            "nvidia-smi -h ended with {}: {reason}",
            done.status
        ));
    }
    parse_help(&said).map(Some)
}

/// Parses the first line of `nvidia-smi -h`.
fn parse_help(said: &str) -> Result<String, String> {
    let line = said.lines().next().unwrap_or_default();
    let version = line.strip_prefix(HEAD).map(str::trim);
    let version = version.filter(|version| is_driver_version(version));
    let unknown = || {
        format!(
            "nvidia-smi -h begins with {:?}, not a version",
            scan::word(line)
        )
    };
    version.map(str::to_owned).ok_or_else(unknown)
}

/// Returns the version in the name of the file that the loader takes for libcuda.
fn library_version(bench: &Bench<'_>) -> Result<Option<String>, String> {
    let libraries = ldconfig::list(bench)?;
    let listed = libraries.iter().find(|library| library.name == LIBRARY);
    let Some(path) = listed.and_then(|library| follow(&bench.machine, &library.path)) else {
        return Ok(None);
    };
    parse_library(&path).map(Some)
}

/// Parses `libcuda.so.550.163.01`.
fn parse_library(path: &str) -> Result<String, String> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let version = name.strip_prefix("libcuda.so.");
    let version = version.filter(|version| is_driver_version(version));
    let unknown = || {
        format!(
            "{LIBRARY} leads to {}, without a version of the driver",
            scan::word(path)
        )
    };
    version.map(str::to_owned).ok_or_else(unknown)
}

/// Follows the links of a file inside the machine; `None` where the file is missing.
fn follow(machine: &Machine, path: &str) -> Option<String> {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(machine.path(&at)) else {
            return machine.path(&at).is_file().then_some(at);
        };
        let target = target.into_os_string().into_string().ok()?;
        at = match (target.starts_with('/'), at.rsplit_once('/')) {
            (false, Some((folder, _))) => format!("{folder}/{target}"),
            (true, _) | (false, None) => target,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const RECORDED: &str = include_str!("../../../../fixtures/nvidia-smi-550.163.01-no-module.txt");

    #[test]
    fn the_help_of_nvidia_smi_has_the_version_without_a_driver() {
        let (_, rest) = RECORDED.split_once("$ nvidia-smi -h").expect("the call");
        let (_, said) = rest.split_once("stdout:\n").expect("its stdout");
        assert_eq!(parse_help(said).as_deref(), Ok("550.163.01"));
        for said in ["", "NVIDIA-SMI has failed\n", &format!("{HEAD}\n")] {
            let why = parse_help(said).expect_err("no version");
            assert!(why.starts_with("nvidia-smi -h begins with"), "{why}");
        }
    }

    #[test]
    fn the_links_of_debian_lead_to_the_file_with_the_version() {
        let root = tempfile::tempdir().expect("a folder");
        let machine = Machine::at(root.path());
        let folder = "usr/lib/x86_64-linux-gnu/nvidia/current";
        for folder in [folder, "lib/x86_64-linux-gnu", "etc/alternatives"] {
            std::fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        let link = |target: &str, path: &str| {
            symlink(target, root.path().join(path)).expect("a link");
        };
        let name = "lib/x86_64-linux-gnu/libcuda.so.1";
        link("/etc/alternatives/libcuda", name);
        link(
            &format!("/{folder}/libcuda.so.1"),
            "etc/alternatives/libcuda",
        );
        link("libcuda.so.550.163.01", &format!("{folder}/libcuda.so.1"));
        let path = format!("/{folder}/libcuda.so.550.163.01");
        let found = || follow(&machine, &format!("/{name}"));
        assert_eq!(found(), None, "the file is missing");
        std::fs::write(root.path().join(&path[1..]), "").expect("a file");
        assert_eq!(found().as_deref(), Some(path.as_str()));
        assert_eq!(parse_library(&path).as_deref(), Ok("550.163.01"));
        assert!(parse_library("/lib/libcuda.so.1").is_err());
        link("circle", "circle");
        assert_eq!(follow(&machine, "/circle"), None);
    }

    #[test]
    fn different_and_missing_versions_are_counted() {
        let told = |versions: [Option<&str>; 3]| {
            let metrics = ["driver.module", "driver.tool", "driver.libcuda"];
            let parts = std::iter::zip(metrics, versions).map(|(metric, version)| Part {
                metric,
                name: metric,
                version: version.map(str::to_owned),
            });
            let reading = compare(&parts.collect::<Vec<_>>());
            ["driver.missing", "driver.versions"].map(|metric| reading.number(metric, ""))
        };
        let (old, new) = (Some("535.274.02"), Some("550.163.01"));
        assert_eq!(told([new, new, new]), [Some(0.0), Some(1.0)]);
        assert_eq!(told([old, new, new]), [Some(0.0), Some(2.0)]);
        assert_eq!(told([new, None, new]), [Some(1.0), Some(1.0)]);
        assert_eq!(told([None, None, None]), [Some(3.0), Some(0.0)]);
    }
}
