//! Facts from /sys, /proc and the firmware's tables. The inventory only reads; an unknown fact is
//! left out, never guessed.
//!
//! No text from the machine is trusted: [`text`] caps and cleans every value.

pub mod cpus; // Processor packages
pub mod disks; // Block devices that could hold an operating system
pub mod gpus; // GPUs, by PCI and by their driver
pub mod memory; // Memory seen by the kernel
pub mod neighbours; // Switch ports announced by LLDP
pub mod nics; // Network interfaces with hardware behind them
pub mod pci; // PCI functions and their links
pub mod smbios; // The firmware's tables
pub mod text; // Cleans text reported by hardware

use muster_core::facts::{Facts, Firmware};
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::Inventory;

use crate::job::JobContext;
use crate::paths;

/// Collects the facts of the whole machine, and asks the GPUs' own tool for their names.
pub fn collect(cx: &JobContext) -> Inventory {
    let mut facts = look();
    gpus::name(cx, &facts.pci, &mut facts.gpus);
    Inventory {
        protocol: PROTOCOL,
        facts,
    }
}

/// Collects the facts from the kernel and the firmware, without running a tool: a hanging driver is
/// never asked.
pub fn look() -> Facts {
    let tables = smbios::read();
    let pci = pci::list();
    Facts {
        smbios: tables.identity,
        boot_id: boot_id(),
        kernel: text::line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        firmware: if paths::at("/sys/firmware/efi").is_dir() {
            Firmware::Uefi
        } else {
            Firmware::Bios
        },
        cpus: cpus::list(),
        numa_nodes: cpus::numa_nodes(),
        memory: memory::read(tables.modules),
        disks: disks::list(),
        nics: nics::list(),
        gpus: gpus::list(&pci),
        pci,
        neighbours: neighbours::heard(),
    }
}

/// Returns the kernel's id of this boot; empty when unknown.
pub fn boot_id() -> String {
    text::line("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}
