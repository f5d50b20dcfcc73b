//! Facts from /sys, /proc and the firmware's tables. Only reads; whatever cannot be told is left out, never guessed.
//!
//! Nothing here is trusted text: all of it comes through [`text`], which caps and cleans it.

pub mod cpus; // Processor packages
pub mod disks; // Block devices that could hold an operating system
pub mod gpus; // GPUs, by PCI and by their driver
pub mod memory; // What the kernel has
pub mod neighbours; // Switch ports that announced themselves
pub mod nics; // Network interfaces with hardware behind them
pub mod pci; // PCI functions and their links
pub mod smbios; // The firmware's tables
pub mod text; // Cleans what hardware says

use muster_core::facts::{Facts, Firmware};
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::Inventory;

use crate::job::JobContext;
use crate::paths;

/// Looks at the whole machine, and asks the GPUs' own tool for their names.
pub fn collect(cx: &JobContext) -> Inventory {
    let mut facts = look();
    gpus::name(cx, &facts.pci, &mut facts.gpus);
    Inventory {
        protocol: PROTOCOL,
        facts,
    }
}

/// What the kernel and the firmware tell, without any tool: no driver that hangs is asked.
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

/// The kernel's id of this boot; empty when there is none.
pub fn boot_id() -> String {
    text::line("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}
