//! What inspection observed on a node. Written by `muster-node inventory`, stored with time and source, never edited.

use serde::{Deserialize, Serialize};

use crate::values::Mac;

/// Everything one inventory saw. An empty list means "looked and found none"; an absent option means "could not tell".
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Facts {
    pub smbios: Smbios,
    pub boot_id: String,
    pub kernel: String,
    pub firmware: Firmware,
    pub cpus: Vec<Cpu>,
    pub numa_nodes: u32,
    pub memory: Memory,
    pub disks: Vec<Disk>,
    pub nics: Vec<Nic>,
    pub pci: Vec<PciDevice>,
    pub gpus: Vec<Gpu>,
    pub neighbours: Vec<Neighbour>,
}

/// Identity as the firmware tells it (DMTF DSP0134, types 1 to 3).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Smbios {
    pub uuid: Option<String>,
    pub serial: Option<String>,
    pub manufacturer: Option<String>,
    pub product: Option<String>,
    pub board_serial: Option<String>,
    pub chassis_serial: Option<String>,
    pub bios_version: Option<String>,
}

/// How the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Firmware {
    #[default]
    Bios,
    Uefi,
}

/// One processor package.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cpu {
    pub socket: u32,
    pub model: String,
    pub cores: u32,
    pub threads: u32,
}

/// Memory the kernel has, and the modules SMBIOS lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Memory {
    /// `MemTotal` of /proc/meminfo, in bytes: less than what is installed by what firmware and kernel keep.
    pub total_bytes: u64,
    /// The sum of SMBIOS type 17 sizes, in bytes; `None` where the firmware lists no modules.
    pub installed_bytes: Option<u64>,
    pub modules: Vec<MemoryModule>,
}

/// One DIMM (SMBIOS type 17).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemoryModule {
    pub locator: String,
    pub size_bytes: u64,
    pub serial: Option<String>,
    pub part_number: Option<String>,
}

/// One block device that could hold an operating system; no partitions, no read-only media.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Disk {
    /// Kernel name without `/dev/`, good for this boot only.
    pub name: String,
    pub serial: Option<String>,
    pub model: Option<String>,
    pub wwn: Option<String>,
    pub transport: DiskTransport,
    pub size_bytes: u64,
    pub rotational: bool,
    pub pci_address: Option<String>,
}

/// How a disk is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DiskTransport {
    Nvme,
    Sata,
    Sas,
    Virtio,
    Usb,
    #[default]
    Other,
}

/// One network interface with hardware behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Nic {
    pub name: String,
    pub mac: Mac,
    pub driver: Option<String>,
    pub pci_address: Option<String>,
    /// `None` while the link is down or the driver does not say.
    pub speed_mbps: Option<u32>,
    pub link_up: bool,
}

/// One PCI function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PciDevice {
    pub address: String,
    pub class: String,
    pub vendor: String,
    pub device: String,
    pub driver: Option<String>,
    /// Current and greatest link width; `None` for functions without a link.
    pub link_width: Option<u32>,
    pub link_width_max: Option<u32>,
    pub link_speed: Option<String>,
    pub link_speed_max: Option<String>,
}

/// One GPU, by PCI alone in the live image (no driver), by the driver afterwards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gpu {
    pub pci_address: String,
    pub vendor: String,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub memory_bytes: Option<u64>,
}

/// A switch port that announced itself (IEEE 802.1AB).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Neighbour {
    pub nic: String,
    pub chassis: String,
    /// The port's id: its name, or its MAC address.
    pub port: String,
    pub system_name: Option<String>,
    /// The port's name, where its id is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_description: Option<String>,
}
