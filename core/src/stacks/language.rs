//! Parts of a stack besides pins: selector, known-bad combinations, firmware, expectations, and the
//! container runtime.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{FileItem, Part};
use crate::facts::{Facts, Nic};
use crate::firmware::{BiosValue, UpdateClass};
use crate::values::Digest;

/// The nodes and images that a stack is made for. Absent fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// OS of the image: `debian`, `ubuntu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// OS version of the image, or a prefix: `12` also matches 12.11.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_version: Option<String>,
    /// Architecture by Debian's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// Family of the GPUs, in the words of the rule book: `hopper`, `blackwell`, `cdna3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// Whether NVSwitches connect the GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvswitch: Option<bool>,
    /// Whether the NVLinks are fifth generation. Switches of this generation need a subnet manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlink5: Option<bool>,
}

/// Package versions known by the author not to work together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KnownBad {
    /// Packages with versions, where `*` matches any text. Only the full combination is bad.
    pub packages: BTreeMap<String, String>,
    pub because: String,
    #[serde(default)]
    pub source: String,
}

/// A firmware version wanted by the stack. Locked items are compared with the BMC's report. If the
/// item has an image, the firmware is updated before a node is installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FirmwareItem {
    /// `bios` and `bmc`, as reported by the machine and its BMC. Otherwise the id of a member of
    /// Redfish's firmware inventory, or a pattern for ids or names: `HGX_FW_GPU_*`.
    pub component: String,
    /// Pattern for the product name, where `*` matches any text. The item applies only to matching
    /// machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    pub version: String,
    #[serde(default)]
    pub source: String,
    /// The blob updating to this version. Without a blob, Muster only compares the version and
    /// never writes the firmware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Digest>,
    /// Requirement for the update to take effect: `reboot`, or `none` for a BMC that restarts by
    /// itself.
    #[serde(default, skip_serializing_if = "UpdateClass::is_default")]
    pub class: UpdateClass,
    /// BIOS attributes of an item `bios`, with the same form as in `bios`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, BiosValue>,
}

/// BIOS settings wanted by the stack. They take effect after a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BiosItem {
    /// Pattern for the product name, where `*` matches any text. The item applies only to matching
    /// machines, because attribute names differ between makers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    #[serde(default)]
    pub source: String,
    /// Attributes by Redfish name. Values: strings, whole numbers, true and false.
    pub attributes: BTreeMap<String, BiosValue>,
}

/// Conditions that a node must satisfy after the stack is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Expectations {
    /// Release of the running kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Number of GPUs on the node's PCI buses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Drivers: `nvidia`, `mlx5_core`. At least one PCI function must be bound to each driver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<String>,
}

impl Expectations {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Configuration of containerd, written as a file of the stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ContainerRuntime {
    /// The OCI runtime for containers without an explicit runtime: `runc`, `nvidia`.
    pub default_runtime: String,
    /// Whether systemd manages the cgroups, as for the kubelet.
    #[serde(default = "yes")]
    pub systemd_cgroup: bool,
    /// Whether devices use the Container Device Interface.
    #[serde(default)]
    pub cdi: bool,
}

fn yes() -> bool {
    true
}

/// Path of the CDI specification that converge writes for a stack with `cdi`.
pub const CDI_SPECIFICATION: &str = "/etc/cdi/nvidia.json";

/// Returns whether a file of a stack is a CDI specification of NVIDIA's devices.
pub(super) fn is_nvidia_specification(path: &str) -> bool {
    path.strip_prefix("/etc/cdi/nvidia").is_some_and(|rest| {
        !rest.contains('/') && (rest.ends_with(".json") || rest.ends_with(".yaml"))
    })
}

/// Path of containerd's configuration file.
pub const CONTAINERD: &str = "/etc/containerd/config.toml";

impl ContainerRuntime {
    /// Returns the configuration in containerd's format, version 2, readable by containerd 1.5 to
    /// 2.
    pub fn render(&self) -> String {
        let Self {
            default_runtime,
            systemd_cgroup,
            cdi,
        } = self;
        let plugin = "plugins.\"io.containerd.grpc.v1.cri\"";
        let mut text = format!("version = 2\n\n[{plugin}]\n  enable_cdi = {cdi}\n");
        if *cdi {
            text.push_str("  cdi_spec_dirs = [\"/etc/cdi\", \"/var/run/cdi\"]\n");
        }
        let _ = write!(
            text,
            "\n[{plugin}.containerd]\n  default_runtime_name = \"{default_runtime}\"\n"
        );
        let mut runtimes = vec!["runc"];
        if default_runtime != "runc" {
            runtimes.push(default_runtime);
        }
        for name in runtimes {
            let path = format!("{plugin}.containerd.runtimes.{name}");
            let _ = write!(
                text,
                "\n[{path}]\n  runtime_type = \"io.containerd.runc.v2\"\n\n[{path}.options]\n"
            );
            if name != "runc" {
                let _ = writeln!(
                    text,
                    "    BinaryName = \"/usr/bin/{name}-container-runtime\""
                );
            }
            let _ = writeln!(text, "    SystemdCgroup = {systemd_cgroup}");
        }
        text
    }

    /// Returns the configuration as a file of the stack.
    pub fn file(&self) -> FileItem {
        FileItem {
            path: CONTAINERD.into(),
            mode: "0644".into(),
            owner: "root".into(),
            group: "root".into(),
            content: vec![Part::Text(self.render())],
        }
    }
}

/// Values of the node usable in files, besides `label:NAME` and `rail:N`.
pub const VALUES: [&str; 6] = [
    "hostname",
    "address",
    "agent_address",
    "cluster_address",
    "node_id",
    "rack",
];

/// Returns whether the name is a value: one of [`VALUES`], `label:NAME`, or `rail:N` ([`rail`]).
pub fn is_value(name: &str) -> bool {
    let label = name
        .strip_prefix("label:")
        .is_some_and(|label| !label.is_empty());
    let rail = name
        .strip_prefix("rail:")
        .is_some_and(|number| number.parse::<u8>().is_ok());
    VALUES.contains(&name) || label || rail
}

/// Returns a node's rail by number, from 0. `None` if the node has fewer rails, or if no link speed
/// is known.
///
/// # Errors
/// Rails are numbered by their links, so a rail without a link would shift its number to the next
/// card. The number is therefore rejected if such a shift is possible: a card without a link comes
/// before the rail in PCI order, and has the driver of a rail or the rails' driver is unknown. The
/// sentence names the card.
pub fn rail(facts: &Facts, number: u8) -> Result<Option<&Nic>, String> {
    let rails = rails(facts);
    let found = rails.get(usize::from(number)).copied();
    let before = |nic: &&Nic| match (&nic.pci_address, found) {
        (None, _) => false,
        (Some(_), None) => true,
        (at, Some(found)) => *at < found.pci_address,
    };
    let alike = |nic: &&Nic| {
        rails.is_empty()
            || nic.driver.is_none()
            || rails.iter().any(|rail| rail.driver == nic.driver)
    };
    match facts
        .nics
        .iter()
        .filter(|nic| !nic.link_up)
        .filter(before)
        .find(alike)
    {
        None => Ok(found),
        Some(card) => Err(format!(
            "which card is rail {number} cannot be told: {} has no link; give it one (its cable, its switch port)",
            called(card)
        )),
    }
}

/// Returns a card's name for people: interface name and PCI address.
pub fn called(nic: &Nic) -> String {
    format!(
        "{} ({})",
        nic.name,
        nic.pci_address.as_deref().unwrap_or("no PCI address")
    )
}

/// Returns a node's rails: the NICs with a link at the highest speed, sorted by PCI address. Empty
/// if no speed is known.
fn rails(facts: &Facts) -> Vec<&Nic> {
    let linked = || {
        facts
            .nics
            .iter()
            .filter(|nic| nic.link_up && nic.pci_address.is_some())
    };
    let fastest = linked().filter_map(|nic| nic.speed_mbps).max();
    let mut rails: Vec<&Nic> = linked()
        .filter(|nic| fastest.is_some() && nic.speed_mbps == fastest)
        .collect();
    rails.sort_by(|a, b| a.pci_address.cmp(&b.pci_address));
    rails
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::StackSpec;
    use crate::values::Mac;

    #[test]
    fn containerd_reads_what_is_rendered() {
        let runtime = ContainerRuntime {
            default_runtime: "nvidia".into(),
            systemd_cgroup: true,
            cdi: true,
        };
        let read: toml::Value = toml::from_str(&runtime.render()).expect("it is TOML");
        let cri = &read["plugins"]["io.containerd.grpc.v1.cri"];
        assert_eq!(
            cri["containerd"]["default_runtime_name"].as_str(),
            Some("nvidia")
        );
        assert_eq!(cri["enable_cdi"].as_bool(), Some(true));
        let nvidia = &cri["containerd"]["runtimes"]["nvidia"]["options"];
        assert_eq!(
            nvidia["BinaryName"].as_str(),
            Some("/usr/bin/nvidia-container-runtime")
        );
        assert_eq!(
            cri["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"].as_bool(),
            Some(true)
        );
    }

    #[test]
    fn a_specification_of_the_stack_takes_the_place_of_converges() {
        for (path, generates) in [
            ("/etc/cdi/nvidia.json", false),
            ("/etc/cdi/nvidia-site.yaml", false),
            ("/etc/cdi/amd.json", true),
            ("/etc/cdi/nvidia.conf", true),
            ("/etc/cdi/nvidia/all.json", true),
            ("/srv/cdi/nvidia.json", true),
        ] {
            let text = format!(
                "version = \"1\"\nimage = \"i\"\n\
                 [container_runtime]\ndefault_runtime = \"runc\"\ncdi = true\n\
                 [[files]]\npath = \"{path}\"\nmode = \"0644\"\ncontent = []\n"
            );
            let stack: StackSpec = toml::from_str(&text).expect("a stack");
            assert_eq!(stack.needs_cdi_specification(), generates, "{path}");
            assert!(stack.uses_cdi(), "{path}");
            let runtime = stack.container_runtime.expect("a runtime");
            let rendered = runtime.render();
            assert!(rendered.contains("enable_cdi = true"), "{path}: {rendered}");
        }
    }

    #[test]
    fn rails_are_the_fastest_links_by_address() {
        let nic = |name: &str, at: &str, speed_mbps, link_up| Nic {
            name: name.into(),
            mac: Mac([2, 0, 0, 0, 0, 0]),
            driver: None,
            pci_address: Some(at.into()),
            speed_mbps,
            link_up,
        };
        let nics = vec![
            nic("ens9", "0000:9a:00.0", Some(400_000), true),
            nic("eno1", "0000:01:00.0", Some(10_000), true),
            nic("ens2", "0000:1a:00.0", Some(400_000), true),
        ];
        let mut facts = Facts {
            nics,
            ..Facts::default()
        };
        let name =
            |facts: &Facts, number| rail(facts, number).map(|nic| nic.map(|nic| nic.name.clone()));
        let known = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!(
            [0, 1, 2].map(|number| name(&facts, number)),
            [known("ens2"), known("ens9"), Ok(None)]
        );
        assert_eq!(name(&Facts::default(), 0), Ok(None));
        // A card without a link keeps its number. The next card does not inherit the number, and
        // earlier cards keep theirs.
        facts
            .nics
            .push(nic("ens3", "0000:2a:00.0", Some(400_000), false));
        assert_eq!(name(&facts, 0), known("ens2"));
        for number in [1, 2] {
            let why = name(&facts, number).expect_err("it may be ens3");
            assert!(why.contains("ens3 (0000:2a:00.0) has no link"), "{why}");
        }
        // A card with another driver was never a rail.
        facts
            .nics
            .iter_mut()
            .for_each(|nic| nic.driver = Some("mlx5_core".into()));
        facts.nics[3].driver = Some("ice".into());
        assert_eq!(name(&facts, 1), known("ens9"));
    }

    #[test]
    fn only_values_there_are_may_be_named() {
        assert!(
            ["hostname", "rack", "label:zone", "rail:0"]
                .into_iter()
                .all(is_value)
        );
        assert!(
            !["host", "", "label:", "rail:", "rail:x"]
                .into_iter()
                .any(is_value)
        );
    }
}
