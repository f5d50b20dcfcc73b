//! What a stack says beside its pins: whom it is for, what it must not meet, what it expects of firmware, and the container runtime.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{FileItem, Part};
use crate::facts::{Facts, Nic};
use crate::firmware::{BiosValue, UpdateClass};
use crate::values::Digest;

/// Whom a stack is for. What is not said is not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// The image's: `debian`, `ubuntu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// The image's, or the beginning of it: `12` is 12.11 too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_version: Option<String>,
    /// Debian's name of the architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// The GPUs' family, as the rule book names it: `hopper`, `blackwell`, `cdna3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// Whether the GPUs are joined by NVSwitches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvswitch: Option<bool>,
    /// Whether the NVLinks are of the fifth generation, whose switches a subnet manager runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlink5: Option<bool>,
}

/// Versions that the author knows not to work together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KnownBad {
    /// Packages with versions, in which `*` is anything. All of them together are bad.
    pub packages: BTreeMap<String, String>,
    pub because: String,
    #[serde(default)]
    pub source: String,
}

/// A firmware that the stack wants. What is in a lock is held against what the BMC says, and brought there by its image before a node is installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FirmwareItem {
    /// `bios` and `bmc`, as the machine and its BMC say of themselves; else the id of a member of Redfish's firmware inventory, or a pattern of ids or
    /// of names: `HGX_FW_GPU_*`.
    pub component: String,
    /// Only machines whose product name fits this; `*` is anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    pub version: String,
    #[serde(default)]
    pub source: String,
    /// The blob that updates to this version. Without one it is compared, and somebody else writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Digest>,
    /// What the update takes to hold: `reboot`, or `none` for a BMC that restarts by itself.
    #[serde(default, skip_serializing_if = "UpdateClass::is_default")]
    pub class: UpdateClass,
    /// BIOS attributes of an item `bios`, as those of `bios`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, BiosValue>,
}

/// BIOS settings that the stack wants. They hold after a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BiosItem {
    /// Only machines whose product name fits this; `*` is anything. Makers do not agree on names of attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    #[serde(default)]
    pub source: String,
    /// By their Redfish names: words, whole numbers, true and false.
    pub attributes: BTreeMap<String, BiosValue>,
}

/// What must be true of a node once the stack is on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Expectations {
    /// The release of the running kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// How many GPUs are on its PCI buses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Drivers, each of which at least one PCI function is bound to: `nvidia`, `mlx5_core`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<String>,
}

impl Expectations {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// containerd's configuration, written as a file of the stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ContainerRuntime {
    /// The OCI runtime of containers that name none: `runc`, `nvidia`.
    pub default_runtime: String,
    /// cgroups are systemd's, as the kubelet's are.
    #[serde(default = "yes")]
    pub systemd_cgroup: bool,
    /// Devices by the Container Device Interface.
    #[serde(default)]
    pub cdi: bool,
}

fn yes() -> bool {
    true
}

/// Where containerd reads its configuration.
pub const CONTAINERD: &str = "/etc/containerd/config.toml";

impl ContainerRuntime {
    /// containerd's own format, version 2, which its series 1.5 to 2 read.
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

    /// As a file of the stack.
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

/// What a file may name of its node, beside `label:NAME`.
pub const VALUES: [&str; 6] = [
    "hostname",
    "address",
    "agent_address",
    "cluster_address",
    "node_id",
    "rack",
];

/// Whether there is a value of this name: one of [`VALUES`], `label:NAME`, or `rail:N` ([`rail`]).
pub fn is_value(name: &str) -> bool {
    let label = name
        .strip_prefix("label:")
        .is_some_and(|label| !label.is_empty());
    let rail = name
        .strip_prefix("rail:")
        .is_some_and(|number| number.parse::<u8>().is_ok());
    VALUES.contains(&name) || label || rail
}

/// A node's rail by number, from 0; `None` where there are fewer, or nothing says how fast they are.
///
/// # Errors
/// Rails are counted by their links, so one that is away would give its number to the next card. Refused where that may be: a card without a link lies
/// before the rail, and has the driver that a rail has, or no rail tells which driver that is. The sentence names the card.
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

/// A card as a person finds it.
pub fn called(nic: &Nic) -> String {
    format!(
        "{} ({})",
        nic.name,
        nic.pci_address.as_deref().unwrap_or("no PCI address")
    )
}

/// A node's rails: its NICs with a link that are as fast as the fastest, by PCI address. None where nothing says how fast they are.
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
        // A card that lost its link keeps its number: the next one does not get it, and what lies before it is as it was.
        facts
            .nics
            .push(nic("ens3", "0000:2a:00.0", Some(400_000), false));
        assert_eq!(name(&facts, 0), known("ens2"));
        for number in [1, 2] {
            let why = name(&facts, number).expect_err("it may be ens3");
            assert!(why.contains("ens3 (0000:2a:00.0) has no link"), "{why}");
        }
        // Of another driver it was never a rail.
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
