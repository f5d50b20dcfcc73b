//! Specifications of NVIDIA devices for containers (Container Device Interface), as JSON or YAML:
//! every named file exists, and is of the installed driver's version. Device nodes exist only beside
//! a GPU, and are counted apart.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::module::{self, Found};
use super::version::version_of;
use crate::gates::parsers::{Bench, Reading, scan};
use crate::machine::Machine;

/// Folders of specifications (the interface's own defaults).
const FOLDERS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
const VENDOR: &str = "nvidia.com/";
/// Longest specification, in bytes.
const FILE_MAX: u64 = 1 << 20;
const FILES_MAX: usize = 64;
/// Number of notes of each kind.
const NOTES_MAX: usize = 5;

#[derive(Deserialize)]
struct Specification {
    kind: String,
    #[serde(default)]
    devices: Vec<Device>,
    #[serde(default, rename = "containerEdits")]
    edits: Edits,
}

#[derive(Deserialize)]
struct Device {
    #[serde(default, rename = "containerEdits")]
    edits: Edits,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Edits {
    #[serde(rename = "deviceNodes")]
    nodes: Vec<DeviceNode>,
    mounts: Vec<Mount>,
    hooks: Vec<Hook>,
}

#[derive(Deserialize)]
struct DeviceNode {
    path: String,
    #[serde(rename = "hostPath")]
    host: Option<String>,
}

#[derive(Deserialize)]
struct Mount {
    #[serde(rename = "hostPath")]
    host: String,
}

#[derive(Deserialize)]
struct Hook {
    path: String,
}

/// Returns the reason to skip the gate on a node without a specification of NVIDIA devices.
pub(in crate::gates::parsers) fn absent(bench: &Bench<'_>) -> Option<String> {
    // An unreadable specification may be NVIDIA's. The gate runs, and the measurement fails with the
    // reason.
    let specifications = list(&bench.machine).ok()?;
    let folders = FOLDERS.join(" and ");
    specifications
        .is_empty()
        .then(|| format!("{folders} have no specification of NVIDIA devices"))
}

pub(in crate::gates::parsers) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let specifications = list(&bench.machine)?;
    let version = match module::find_file(bench)? {
        Found::File(file) => module::version(bench, &file)?,
        Found::Missing(_) => None,
    };
    let version = version.ok_or("the driver has no module with a version to compare with")?;
    Ok(compare(&bench.machine, &specifications, &version))
}

/// Returns the specifications of NVIDIA devices.
fn list(machine: &Machine) -> Result<Vec<Specification>, String> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        let entries = match std::fs::read_dir(machine.path(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{folder}: {error}")),
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        paths.extend(names.map(|name| format!("{folder}/{name}")));
    }
    paths.retain(|path| is_json(path) || path.ends_with(".yaml"));
    paths.sort();
    if paths.len() > FILES_MAX {
        return Err(format!("more than {FILES_MAX} specifications"));
    }
    let mut specifications = Vec::new();
    for path in paths {
        let bytes = machine.read(&path, FILE_MAX);
        let bytes = bytes
            .map_err(|failure| scan::word(&failure.message))?
            .unwrap_or_default();
        specifications.push(parse(&path, &bytes)?);
    }
    specifications.retain(|specification| specification.kind.starts_with(VENDOR));
    Ok(specifications)
}

fn is_json(path: &str) -> bool {
    path.ends_with(".json")
}

fn parse(path: &str, bytes: &[u8]) -> Result<Specification, String> {
    let parsed = match is_json(path) {
        true => serde_json::from_slice(bytes).map_err(|error| error.to_string()),
        false => serde_yaml_ng::from_slice(bytes).map_err(|error| error.to_string()),
    };
    parsed.map_err(|why| {
        let (path, why) = (scan::word(path), scan::word(&why));
        format!("{path} is no specification of devices: {why}")
    })
}

/// Compares the named files with the disk, and with the driver's version.
fn compare(machine: &Machine, specifications: &[Specification], version: &str) -> Reading {
    let of_devices = specifications.iter().flat_map(|one| &one.devices);
    let of_devices = of_devices.map(|device| &device.edits);
    let edits = specifications.iter().map(|one| &one.edits);
    let edits: Vec<&Edits> = edits.chain(of_devices).collect();
    let mounts = edits.iter().flat_map(|edits| &edits.mounts);
    let hooks = edits.iter().flat_map(|edits| &edits.hooks);
    let files: BTreeSet<&str> = mounts
        .map(|mount| mount.host.as_str())
        .chain(hooks.map(|hook| hook.path.as_str()))
        .collect();
    let nodes: BTreeSet<&str> = edits
        .iter()
        .flat_map(|edits| &edits.nodes)
        .map(|node| node.host.as_deref().unwrap_or(&node.path))
        .collect();
    let is_missing = |path: &&&str| !machine.path(path).exists();
    let missing: Vec<&&str> = files.iter().filter(is_missing).collect();
    let is_other = |path: &&&str| version_of(path).is_some_and(|found| found != version);
    let other: Vec<&&str> = files.iter().filter(is_other).collect();
    let mut reading = Reading::default();
    reading.count("cdi.specifications", specifications.len());
    reading.count("cdi.files", files.len());
    reading.count("cdi.missing", missing.len());
    reading.count("cdi.other_version", other.len());
    reading.count(
        "cdi.devices_missing",
        nodes.iter().filter(is_missing).count(),
    );
    let missing = missing
        .into_iter()
        .take(NOTES_MAX)
        .map(|path| scan::word(path));
    reading
        .notes
        .extend(missing.map(|path| format!("{path} is missing")));
    let other = other
        .into_iter()
        .take(NOTES_MAX)
        .map(|path| scan::word(path));
    reading
        .notes
        .extend(other.map(|path| format!("{path} is of another version than {version}")));
    reading
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = include_str!("../../../../fixtures/cdi-nvidia-ctk-1.20.0-550.163.01.yaml");
    const VERSION: &str = "550.163.01";
    const METRICS: [&str; 5] = [
        "cdi.specifications",
        "cdi.files",
        "cdi.missing",
        "cdi.other_version",
        "cdi.devices_missing",
    ];

    /// A node with a specification, and with every named file but the device nodes.
    fn node(name: &str, text: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        write(&format!("/etc/cdi/{name}"), text);
        let specification = parse(name, text.as_bytes()).expect("a specification");
        for mount in &specification.edits.mounts {
            write(&mount.host, "");
        }
        for hook in &specification.edits.hooks {
            write(&hook.path, "");
        }
        root
    }

    fn counts(root: &tempfile::TempDir, version: &str) -> [f64; 5] {
        let machine = Machine::at(root.path());
        let reading = compare(&machine, &list(&machine).expect("a list"), version);
        METRICS.map(|metric| reading.number(metric, "").expect("a number"))
    }

    #[test]
    fn the_specification_of_nvidia_ctk_fits_only_its_own_driver() {
        let root = node("nvidia.yaml", YAML);
        // Nine mounts and a hook; four device nodes, which exist only beside a GPU.
        assert_eq!(counts(&root, VERSION), [1.0, 10.0, 0.0, 0.0, 4.0]);
        // Five libraries and two files of firmware have the version in their paths.
        assert_eq!(counts(&root, "535.274.02"), [1.0, 10.0, 0.0, 7.0, 4.0]);
        let library = "usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.163.01";
        std::fs::remove_file(root.path().join(library)).expect("the library");
        let machine = Machine::at(root.path());
        let reading = compare(&machine, &list(&machine).expect("a list"), VERSION);
        assert_eq!(reading.number("cdi.missing", ""), Some(1.0));
        assert_eq!(reading.notes, [format!("/{library} is missing")]);
    }

    #[test]
    fn json_reads_like_yaml_and_other_vendors_are_left_out() {
        let document: serde_json::Value = serde_yaml_ng::from_str(YAML).expect("a document");
        let root = node("nvidia.json", &document.to_string());
        assert_eq!(counts(&root, VERSION), [1.0, 10.0, 0.0, 0.0, 4.0]);
        let other = "{\"cdiVersion\": \"0.6.0\", \"kind\": \"vendor.com/net\", \"devices\": []}";
        let root = node("other.json", other);
        let machine = Machine::at(root.path());
        assert!(list(&machine).expect("a list").is_empty());
        let empty = tempfile::tempdir().expect("a folder");
        assert!(list(&Machine::at(empty.path())).expect("a list").is_empty());
    }

    /// The interface reads only `.json` and `.yaml`.
    #[test]
    fn a_file_with_another_ending_is_no_specification() {
        for name in ["nvidia.yml", "nvidia.json.bak"] {
            let root = node(name, YAML);
            let machine = Machine::at(root.path());
            assert!(list(&machine).expect("a list").is_empty(), "{name}");
        }
    }

    #[test]
    fn a_broken_specification_is_no_answer() {
        for (name, text) in [
            ("nvidia.yaml", "kind: ["),
            ("nvidia.json", "{}"),
            ("nvidia.json", YAML),
            ("nvidia.yaml", "cdiVersion: 0.3.0\n"),
            (
                "nvidia.json",
                "{\"kind\": \"nvidia.com/gpu\", \"devices\": 1}",
            ),
        ] {
            let root = tempfile::tempdir().expect("a folder");
            let folder = root.path().join("etc/cdi");
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join(name), text).expect("a file");
            let why = list(&Machine::at(root.path())).err().expect("no answer");
            assert!(why.contains("no specification of devices"), "{why}");
        }
    }
}
