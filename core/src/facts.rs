//! Facts observed on a node by an inspection. Written by `muster-node inventory`, stored with time
//! and source, never edited.

use serde::{Deserialize, Serialize};

use crate::values::Mac;
use crate::words;

/// All observations of an inventory. An empty list means "searched and found none"; an absent
/// option means "could not be read".
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

/// Identity reported by the firmware (DMTF DSP0134, types 1 to 3).
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

words! {
    /// The firmware interface used at boot.
    #[derive(Default)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    Firmware, "firmware interface" {
        #[default]
        Bios = "bios",
        Uefi = "uefi",
    }
}

/// A processor package.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cpu {
    pub socket: u32,
    pub model: String,
    pub cores: u32,
    pub threads: u32,
}

/// Memory available to the kernel, and the modules listed by SMBIOS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Memory {
    /// `MemTotal` of /proc/meminfo, in bytes: the installed memory minus the part reserved by
    /// firmware and kernel.
    pub total_bytes: u64,
    /// Sum of SMBIOS type 17 sizes, in bytes; `None` if the firmware lists no modules.
    pub installed_bytes: Option<u64>,
    pub modules: Vec<MemoryModule>,
}

/// A DIMM (SMBIOS type 17).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemoryModule {
    pub locator: String,
    pub size_bytes: u64,
    pub serial: Option<String>,
    pub part_number: Option<String>,
}

/// A block device suitable for an operating system. Partitions and read-only media are excluded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Disk {
    /// Kernel name without `/dev/`, valid for this boot only.
    pub name: String,
    pub serial: Option<String>,
    pub model: Option<String>,
    pub wwn: Option<String>,
    pub transport: DiskTransport,
    pub size_bytes: u64,
    pub rotational: bool,
    pub pci_address: Option<String>,
}

/// The transport of a disk.
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

/// A network interface backed by hardware.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Nic {
    pub name: String,
    pub mac: Mac,
    pub driver: Option<String>,
    pub pci_address: Option<String>,
    /// Link speed in Mb/s; `None` while the link is down or the driver reports no speed.
    pub speed_mbps: Option<u32>,
    pub link_up: bool,
}

/// A PCI function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PciDevice {
    pub address: String,
    pub class: String,
    pub vendor: String,
    pub device: String,
    pub driver: Option<String>,
    /// Current and maximum link width in lanes; `None` for functions without a link.
    pub link_width: Option<u32>,
    pub link_width_max: Option<u32>,
    pub link_speed: Option<String>,
    pub link_speed_max: Option<String>,
}

/// A GPU. In the live image the values come from PCI alone (no driver), afterwards from the driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gpu {
    pub pci_address: String,
    pub vendor: String,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub memory_bytes: Option<u64>,
}

/// A switch port announced over LLDP (IEEE 802.1AB).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Neighbour {
    pub nic: String,
    pub chassis: String,
    /// The port's id: a name or a MAC address.
    pub port: String,
    pub system_name: Option<String>,
    /// The port's name, if different from its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_description: Option<String>,
}
