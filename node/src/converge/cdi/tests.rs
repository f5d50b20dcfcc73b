//! The specification of Debian 13's driver, and trees with unusable files, links and lists.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::document::{Driver, OwnedFile, folder_of, render};
use super::*;

const V550: &str = "550.163.01";
/// The specification of nvidia-ctk on Debian 13, recorded.
const RECORDED: &str = include_str!("../../../fixtures/cdi-nvidia-ctk-1.20.0-550.163.01.yaml");

fn texts(list: &serde_yaml_ng::Value, member: &str) -> Vec<String> {
    let items = list.as_sequence().expect("a list");
    let text = |item: &serde_yaml_ng::Value| item[member].as_str().expect("a text").to_owned();
    items.iter().map(text).collect()
}

/// Returns Debian 13's driver: files, links and nodes of the recording. Derived, because the
/// recording does not show them: the link of the alternative in the loader's folder, the versions
/// of the packages, and the host's paths on a merged /usr.
fn debian() -> Driver {
    let recorded: serde_yaml_ng::Value = serde_yaml_ng::from_str(RECORDED).expect("YAML");
    let edits = &recorded["containerEdits"];
    let files = texts(&edits["mounts"], "hostPath");
    let nodes = texts(
        &recorded["devices"][0]["containerEdits"]["deviceNodes"],
        "path",
    );
    let arguments = edits["hooks"][0]["args"].as_sequence().expect("a list");
    let arguments = arguments.iter().filter_map(serde_yaml_ng::Value::as_str);
    // `libcuda.so.1::/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so`: target and link.
    let pairs = arguments.filter_map(|argument| argument.split_once("::"));
    let direct: BTreeMap<String, String> = pairs
        .map(|(target, link)| (link.to_owned(), format!("{}/{target}", folder_of(link))))
        .collect();
    let follow = |link: &String| direct[link].clone();
    let last = |link: &String| {
        let target = follow(link);
        direct.get(&target).cloned().unwrap_or(target)
    };
    let mut links: BTreeMap<String, String> = direct
        .keys()
        .map(|link| (link.clone(), last(link)))
        .collect();
    let folder = "/usr/lib/x86_64-linux-gnu";
    let libcuda = format!("{folder}/nvidia/current/libcuda.so.{V550}");
    links.insert(format!("{folder}/libcuda.so.1"), libcuda.clone());
    Driver {
        folder,
        libcuda,
        version: V550.to_owned(),
        files: files
            .into_iter()
            .map(|path| OwnedFile {
                path,
                version: V550.to_owned(),
            })
            .collect(),
        links,
        nodes: nodes
            .iter()
            .filter_map(|path| path.strip_prefix("/dev/").map(str::to_owned))
            .collect(),
    }
}

#[test]
fn the_specification_of_debian_13_is_the_golden_one() {
    let written = String::from_utf8(render(&debian())).expect("text");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/cdi-muster-550.163.01.json");
    if std::env::var_os("GOLDEN").is_some_and(|action| action == "write") {
        std::fs::write(&path, &written).expect("a file");
    }
    let golden = std::fs::read_to_string(&path).expect("the golden file");
    assert_eq!(written, golden);
}

#[test]
fn every_file_mounted_by_nvidias_own_program_is_mounted() {
    let mounts = mounts(&render(&debian()));
    let recorded: serde_yaml_ng::Value = serde_yaml_ng::from_str(RECORDED).expect("YAML");
    let hosts: BTreeSet<&String> = mounts.values().collect();
    for path in texts(&recorded["containerEdits"]["mounts"], "hostPath") {
        assert!(hosts.contains(&path), "{path}");
    }
}

#[test]
fn a_driver_without_a_gpu_has_a_valid_device_for_all() {
    let driver = Driver {
        nodes: BTreeSet::new(),
        ..debian()
    };
    let document: Value = serde_json::from_slice(&render(&driver)).expect("JSON");
    let devices = document["devices"].as_array().expect("a list");
    assert_eq!(devices.len(), 1, "{devices:?}");
    assert_eq!(devices[0]["name"], "all");
    let env = &devices[0]["containerEdits"]["env"];
    assert_eq!(env[0], "NVIDIA_VISIBLE_DEVICES=void");
    assert_eq!(
        document["containerEdits"].get("deviceNodes"),
        None,
        "no node is named that does not exist"
    );
}

/// Returns the mounted files by their places in containers.
fn mounts(document: &[u8]) -> BTreeMap<String, String> {
    let document: Value = serde_json::from_slice(document).expect("JSON");
    let mounts = document["containerEdits"]["mounts"]
        .as_array()
        .expect("a list");
    let text = |mount: &Value, member: &str| mount[member].as_str().expect("a text").to_owned();
    mounts
        .iter()
        .map(|mount| (text(mount, "containerPath"), text(mount, "hostPath")))
        .collect()
}

/// A system in a folder, with a driver of version 550.163.01.
struct System {
    root: TempDir,
    /// The loader's folder.
    folder: &'static str,
}

impl System {
    fn new() -> Self {
        let system = Self {
            root: tempfile::tempdir().expect("a folder"),
            folder: driver::library_folder().expect("a known architecture"),
        };
        let current = format!("{}/nvidia/current", system.folder);
        let libcuda = format!("{current}/libcuda.so.{V550}");
        let smi = "/usr/lib/nvidia/current/nvidia-smi";
        for path in [libcuda.as_str(), smi] {
            system.write(path, "");
        }
        system.install(&[
            ("libcuda1:amd64", "550.163.01-2", &[libcuda.as_str()]),
            ("nvidia-smi", "550.163.01-2", &[smi]),
        ]);
        let alternative = "/etc/alternatives/glx--libcuda.so.1";
        system.link(&format!("{}/libcuda.so.1", system.folder), alternative);
        system.link(alternative, &format!("{current}/libcuda.so.1"));
        system.link(
            &format!("{current}/libcuda.so.1"),
            &format!("libcuda.so.{V550}"),
        );
        system
    }

    fn path(&self, path: &str) -> PathBuf {
        let path = self.root.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        path
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::write(self.path(path), text).expect("a file");
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        let _ = std::fs::remove_file(&path);
        symlink(target, path).expect("a link");
    }

    /// Adds packages: the name as in the name of the file list, the version, and the listed paths.
    fn install(&self, packages: &[(&str, &str, &[&str])]) {
        let status = self.path("/var/lib/dpkg/status");
        let mut text = std::fs::read_to_string(&status).unwrap_or_default();
        for (name, version, paths) in packages {
            let package = name.split(':').next().unwrap_or(name);
            text += &format!(
                "Package: {package}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n\n"
            );
            let list = format!("/var/lib/dpkg/info/{name}.list");
            self.write(&list, &(paths.join("\n") + "\n"));
        }
        std::fs::write(status, text).expect("a file");
    }

    fn make(&self) -> Result<Option<Vec<u8>>, Failure> {
        let machine = Machine::at(self.root.path());
        make(&machine, &Database::read(&machine)?)
    }

    fn mounts(&self) -> BTreeMap<String, String> {
        mounts(&self.make().expect("a document").expect("a driver"))
    }

    fn code(&self) -> FailureCode {
        self.make().expect_err("no document").code
    }
}

#[test]
fn a_library_is_mounted_under_each_name_of_the_loader() {
    let system = System::new();
    let folder = system.folder;
    let libcuda = format!("{folder}/nvidia/current/libcuda.so.{V550}");
    let names = ["libcuda.so.1".to_owned(), format!("libcuda.so.{V550}")];
    let mut expected: BTreeMap<String, String> = [folder, "/usr/lib64"]
        .iter()
        .flat_map(|folder| names.iter().map(move |name| format!("{folder}/{name}")))
        .map(|place| (place, libcuda.clone()))
        .collect();
    expected.insert(
        "/usr/bin/nvidia-smi".to_owned(),
        "/usr/lib/nvidia/current/nvidia-smi".to_owned(),
    );
    assert_eq!(system.mounts(), expected);
}

#[test]
fn files_that_are_not_of_the_driver_are_left_out() {
    let system = System::new();
    let before = system.mounts();
    let folder = system.folder;
    let other = format!("{folder}/libnvidia-ml.so.535.309.01");
    let bell = format!("{folder}/libbell\u{7}.so.{V550}");
    let detour = format!("{folder}/nvidia/../libdetour.so.{V550}");
    let outside = format!("/opt/liboutside.so.{V550}");
    let gone = format!("{folder}/libgone.so.{V550}");
    let directory = format!("{folder}/libfolder.so.{V550}");
    let renamed = format!("{folder}/librenamed.so.{V550}");
    let lintian = "/usr/share/lintian/overrides/nvidia-cuda-mps-server".to_owned();
    for path in [
        &lintian,
        &other,
        &bell,
        &outside,
        &format!("{folder}/libdetour.so.{V550}"),
        &format!("{folder}/libnvidia-target.so.535.309.01"),
    ] {
        system.write(path, "");
    }
    std::fs::create_dir(system.path(&directory)).expect("a folder");
    system.link(&renamed, "libnvidia-target.so.535.309.01");
    system.write("/usr/bin/nvidia-persistenced", "");
    system.install(&[
        (
            "libodd",
            "550.163.01-2",
            &[
                &other, &bell, &detour, &outside, &gone, &directory, &renamed, &lintian,
            ],
        ),
        (
            "nvidia-persistenced",
            "535.171.04-1",
            &["/usr/bin/nvidia-persistenced"],
        ),
    ]);
    // Links that are dangling, or lead to a file of no package.
    system.link(&format!("{folder}/libcuda.so.2"), "libcuda.so.missing");
    system.write(&format!("/srv/libcuda.so.{V550}"), "");
    system.link(
        &format!("{folder}/libcuda.so"),
        &format!("../../../../../../../../srv/libcuda.so.{V550}"),
    );
    // A regular file is no device node.
    system.write("/dev/nvidia0", "");
    assert_eq!(system.mounts(), before);
    let content = system.make().expect("a document").expect("a driver");
    let document: Value = serde_json::from_slice(&content).expect("JSON");
    assert_eq!(document["devices"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_libcuda_of_no_known_driver_is_refused() {
    let system = System::new();
    let link = format!("{}/libcuda.so.1", system.folder);
    for target in ["missing", "libcuda.so.1", "/srv/libcuda.so.550.163.01"] {
        system.write("/srv/libcuda.so.550.163.01", "");
        system.link(&link, target);
        assert_eq!(system.code(), FailureCode::CdiIncomplete, "{target}");
    }
    std::fs::remove_file(system.path("/var/lib/dpkg/status")).expect("a file");
    let failure = system.make().expect_err("a libcuda of no package");
    assert_eq!(failure.code, FailureCode::CdiIncomplete);
    assert!(
        failure.message.contains("which no installed package has"),
        "{failure:?}"
    );
    std::fs::remove_file(system.path(&link)).expect("a link");
    let made = system.make().expect("no failure");
    assert_eq!(made, None, "the node has no libcuda");
}

#[test]
fn a_folder_with_too_many_files_is_refused() {
    let system = System::new();
    let machine = Machine::at(system.root.path());
    // Two entries: the link of libcuda, and the folder `nvidia`.
    let folders = BTreeSet::from([system.folder]);
    let stems = BTreeSet::from(["libcuda"]);
    let found = links::find(&machine, &folders, &stems, 2).expect("links");
    assert_eq!(found.len(), 1);
    let failure = links::find(&machine, &folders, &stems, 1).expect_err("too many files");
    assert_eq!(failure.code, FailureCode::CdiIncomplete);

    for number in 0..=256 {
        system.write(&format!("/etc/cdi/{number}"), "");
    }
    let failure = system.make().expect_err("too many files");
    assert_eq!(failure.code, FailureCode::CdiConflict);
    assert!(failure.message.contains("more than 256"), "{failure:?}");
}

#[test]
fn a_file_with_unknown_devices_is_named() {
    let system = System::new();
    let path = "/etc/cdi/long.json";
    system.write(path, "{}");
    system.make().expect("no conflict");
    let long = std::fs::File::options().write(true).open(system.path(path));
    long.and_then(|file| file.set_len((16 << 20) + 1))
        .expect("a long file");
    let failure = system.make().expect_err("a conflict");
    assert_eq!(failure.code, FailureCode::CdiConflict);
    assert!(
        failure.message.contains("remove /etc/cdi/long.json"),
        "{failure:?}"
    );
}

#[test]
fn another_file_with_the_same_devices_is_named() {
    let system = System::new();
    system.write(
        "/etc/cdi/amd.yaml",
        "cdiVersion: 0.5.0\nkind: amd.com/gpu\n",
    );
    system.write("/etc/cdi/broken.json", "{");
    system.write("/etc/cdi/nvidia.yaml.old", RECORDED);
    system.write(CDI_SPECIFICATION, "{\"kind\": \"nvidia.com/gpu\"}");
    system.make().expect("no conflict");
    system.write("/etc/cdi/nvidia.yaml", RECORDED);
    let failure = system.make().expect_err("a conflict");
    assert_eq!(failure.code, FailureCode::CdiConflict);
    assert!(
        failure.message.contains("remove /etc/cdi/nvidia.yaml"),
        "{failure:?}"
    );
}
