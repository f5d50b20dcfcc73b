//! The content of the specification. No hook is named: a hook is a program of the host that runs in
//! the container's root. Each library is mounted under every name that the loader looks for.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// Kind of the devices, before `=` in a device's name.
pub(super) const KIND: &str = "nvidia.com/gpu";
/// Version of the format: the lowest in which names of devices begin with a digit.
const FORMAT: &str = "0.5.0";
/// Keeps NVIDIA's own container runtime from adding the devices again.
const ENVIRONMENT: &str = "NVIDIA_VISIBLE_DEVICES=void";
/// The loader's folder in images of Red Hat, Fedora and SUSE.
const LIB64: &str = "/usr/lib64";
const BIN: &str = "/usr/bin";
/// Folders with programs. Other files, such as of lintian, have names of programs too.
const PROGRAM_FOLDERS: [&str; 3] = ["/usr/bin/", "/usr/sbin/", "/usr/lib/nvidia/"];
/// The driver's programs for containers.
pub(super) const PROGRAMS: [&str; 4] = [
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-persistenced",
    "nvidia-smi",
];
/// Nodes for all GPUs together. `nvidia-modeset` is for displays.
const SHARED: [&str; 3] = ["nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"];
const OPTIONS: [&str; 4] = ["ro", "nosuid", "nodev", "bind"];

/// A driver as found on a node.
#[derive(Debug)]
pub(super) struct Driver {
    /// The loader's folder for the machine's architecture.
    pub(super) folder: &'static str,
    /// Path of the library behind `libcuda.so.1`.
    pub(super) libcuda: String,
    pub(super) version: String,
    /// Regular files, without links in their paths.
    pub(super) files: Vec<OwnedFile>,
    /// Links to libraries, each with its final target.
    pub(super) links: BTreeMap<String, String>,
    /// Names of device nodes below /dev.
    pub(super) nodes: BTreeSet<String>,
}

/// A regular file of a package.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OwnedFile {
    pub(super) path: String,
    /// Version of the package, without epoch and revision.
    pub(super) version: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    cdi_version: &'static str,
    kind: &'static str,
    devices: Vec<Device<'a>>,
    /// Edits for each device.
    container_edits: Edits<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device<'a> {
    name: String,
    container_edits: Edits<'a>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    device_nodes: Vec<Node>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<Mount<'a>>,
}

/// A device node. The runtime reads the numbers at the start of a container: some numbers change
/// with each boot.
#[derive(Serialize)]
struct Node {
    path: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Mount<'a> {
    host_path: &'a str,
    container_path: String,
    options: [&'static str; 4],
}

/// Returns the specification as JSON.
pub(super) fn render(driver: &Driver) -> Vec<u8> {
    let nodes = SHARED
        .into_iter()
        .filter(|name| driver.nodes.contains(*name));
    let document = Document {
        cdi_version: FORMAT,
        kind: KIND,
        devices: list_devices(driver),
        container_edits: Edits {
            env: vec![ENVIRONMENT],
            device_nodes: nodes.map(node).collect(),
            mounts: list_mounts(driver),
        },
    };
    let mut content = serde_json::to_vec_pretty(&document).expect("a document holds only texts");
    content.push(b'\n');
    content
}

/// Returns a device for each GPU, and `all`. A device without edits is invalid, so `all` has the
/// variable on a machine without a GPU too.
fn list_devices(driver: &Driver) -> Vec<Device<'_>> {
    let numbers: BTreeSet<u32> = driver
        .nodes
        .iter()
        .filter_map(|name| number_of(name))
        .collect();
    let gpu = |number: &u32| node(&format!("nvidia{number}"));
    let mut devices: Vec<Device<'_>> = numbers
        .iter()
        .map(|number| Device {
            name: number.to_string(),
            container_edits: Edits {
                device_nodes: vec![gpu(number)],
                ..Edits::default()
            },
        })
        .collect();
    devices.push(Device {
        name: "all".to_owned(),
        container_edits: Edits {
            env: vec![ENVIRONMENT],
            device_nodes: numbers.iter().map(gpu).collect(),
            ..Edits::default()
        },
    });
    devices
}

/// Returns the number of a GPU's node.
fn number_of(name: &str) -> Option<u32> {
    let number: u32 = name.strip_prefix("nvidia")?.parse().ok()?;
    (name == format!("nvidia{number}")).then_some(number)
}

fn node(name: &str) -> Node {
    Node {
        path: format!("/dev/{name}"),
    }
}

/// Returns the mounts by their places in containers. Of two files for one place, the file beside
/// libcuda is taken.
fn list_mounts(driver: &Driver) -> Vec<Mount<'_>> {
    let home = folder_of(&driver.libcuda);
    let (beside, others): (Vec<&OwnedFile>, Vec<&OwnedFile>) = driver
        .files
        .iter()
        .partition(|file| folder_of(&file.path) == home);
    let mut mounts = BTreeMap::new();
    for file in beside.into_iter().chain(others) {
        for place in list_places(driver, file) {
            mounts.entry(place).or_insert(file.path.as_str());
        }
    }
    let mount = |(container_path, host_path)| Mount {
        host_path,
        container_path,
        options: OPTIONS,
    };
    mounts.into_iter().map(mount).collect()
}

/// Returns the places of a file in containers; empty for a file that is not of the driver.
fn list_places(driver: &Driver, file: &OwnedFile) -> Vec<String> {
    let name = name_of(&file.path);
    if let Some(stem) = library_stem(driver, &file.path) {
        let mut names = BTreeSet::from([name]);
        names.extend(list_links(driver, &file.path, stem));
        let folders = [driver.folder, LIB64];
        return folders
            .iter()
            .flat_map(|folder| names.iter().map(move |name| format!("{folder}/{name}")))
            .collect();
    }
    let is_inside = |folder: &&str| file.path.starts_with(*folder);
    let is_program = PROGRAMS.contains(&name) && PROGRAM_FOLDERS.iter().any(is_inside);
    if is_program && file.version == driver.version {
        return vec![format!("{BIN}/{name}")];
    }
    place_firmware(driver, &file.path).into_iter().collect()
}

/// Returns `libcuda` for `libcuda.so.550.163.01` of the driver's version, in the loader's folder or
/// below.
pub(super) fn library_stem<'a>(driver: &Driver, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix(driver.folder)?;
    let name = name_of(path);
    let stem = name
        .strip_suffix(driver.version.as_str())?
        .strip_suffix(".so.")?;
    (rest.starts_with('/') && stem.starts_with("lib")).then_some(stem)
}

/// Returns the names of the links to a library, such as `libcuda.so` and `libcuda.so.1`.
fn list_links<'a>(driver: &'a Driver, path: &str, stem: &str) -> Vec<&'a str> {
    let is_of_stem = |name: &str| {
        name.strip_prefix(stem)
            .and_then(|rest| rest.strip_prefix(".so"))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let links = driver.links.iter();
    links
        .filter(|(_, target)| *target == path)
        .map(|(link, _)| name_of(link))
        .filter(|name| is_of_stem(name))
        .collect()
}

/// Returns the place of a GSP firmware file.
fn place_firmware(driver: &Driver, path: &str) -> Option<String> {
    let place = path.strip_prefix("/usr").unwrap_or(path);
    let folder = format!("/lib/firmware/nvidia/{}/", driver.version);
    let name = place.strip_prefix(&folder)?;
    (name.ends_with(".bin") && !name.contains('/')).then(|| place.to_owned())
}

pub(super) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

pub(super) fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
