//! The facts observed by inspection, with age and source.

use crate::db::facts::{SeenFacts, Source};
use jiff::Timestamp;
use muster_core::facts::{Cpu, Firmware};
use muster_core::firmware::{BmcInventory, SeenFirmware};

use super::{Pair, pair};
use crate::db::firmware::SeenInventory;
use crate::ui::format::{self, Moment};

/// Most rows of a table of parts.
const MOST: usize = 64;
/// Age in hours after which facts are shown as old.
const STALE_H: i64 = 24 * 7;
/// Most rows of the table of BIOS settings.
const ATTRIBUTES: usize = 2000;

pub(super) struct Facts {
    pub at: Moment,
    pub source: &'static str,
    pub stale: bool,
    pub pairs: Vec<Pair>,
    pub tables: Vec<Table>,
}

/// A table of the parts of one kind.
pub(super) struct Table {
    pub title: String,
    pub heads: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

pub(super) fn table(seen: SeenFacts, said: Option<SeenInventory>, now: Timestamp) -> Facts {
    let facts = &seen.facts;
    let text = |value: &Option<String>| format::cut(value.as_deref().unwrap_or("–"), 80);
    let smbios = &facts.smbios;
    let firmware = match facts.firmware {
        Firmware::Bios => "BIOS",
        Firmware::Uefi => "UEFI",
    };
    let installed = facts
        .memory
        .installed_bytes
        .map(|size| format!(" of {} installed", format::bytes(size)))
        .unwrap_or_default();
    let pairs = vec![
        pair(
            "Machine",
            format!("{} {}", text(&smbios.manufacturer), text(&smbios.product)),
        ),
        pair("Serial", text(&smbios.serial)),
        pair(
            "Board, chassis",
            format!(
                "{}, {}",
                text(&smbios.board_serial),
                text(&smbios.chassis_serial)
            ),
        ),
        pair(
            "Firmware",
            format!("{firmware} {}", text(&smbios.bios_version)),
        ),
        pair("Processors", processors(&facts.cpus)),
        pair("NUMA nodes", facts.numa_nodes.to_string()),
        pair(
            "Memory",
            format!("{}{installed}", format::bytes(facts.memory.total_bytes)),
        ),
        pair("Kernel", facts.kernel.clone()),
        pair("Boot id", facts.boot_id.clone()),
        pair("PCI functions", facts.pci.len().to_string()),
    ];
    Facts {
        at: format::moment(seen.observed_at, now),
        source: if seen.source == Source::Live {
            "live image"
        } else {
            "installed system"
        },
        stale: now.duration_since(seen.observed_at).as_hours() >= STALE_H,
        pairs,
        tables: [gpus(&seen), disks(&seen), nics(&seen), neighbours(&seen)]
            .into_iter()
            .chain(
                said.iter()
                    .flat_map(|said| [firmware_table(said, now), bios_table(said)]),
            )
            .collect(),
    }
}

/// Returns the firmware reported by the BMC, and the sources the BMC failed to read.
fn firmware_table(said: &SeenInventory, now: Timestamp) -> Table {
    let BmcInventory {
        firmware, unread, ..
    } = &said.inventory;
    let row = |seen: &SeenFirmware| {
        vec![
            format::cut(&seen.id, 80),
            format::cut(&seen.name, 60),
            format::cut(&seen.version, 80),
        ]
    };
    let unknown = unread
        .iter()
        .map(|why| vec!["unknown".to_owned(), format::cut(why, 200), "–".to_owned()]);
    let all = firmware.len() + unread.len();
    let title = format!(
        "Firmware, as its BMC said {}",
        format::moment(said.last_seen, now).relative
    );
    build(
        &title,
        vec!["Id", "Name", "Version"],
        all,
        unknown.chain(firmware.iter().map(row)),
    )
}

fn bios_table(said: &SeenInventory) -> Table {
    let bios = &said.inventory.bios;
    let rows = bios
        .iter()
        .map(|(name, value)| vec![format::cut(name, 80), format::cut(&value.to_string(), 80)]);
    let all = bios.len();
    // The table is shown whole, because settings are searched by name. A machine may have a
    // thousand settings.
    Table {
        title: format!("BIOS settings: {}", format::count_rows(all, ATTRIBUTES)),
        heads: vec!["Attribute", "Value"],
        rows: rows.take(ATTRIBUTES).collect(),
    }
}

fn processors(cpus: &[Cpu]) -> String {
    match cpus.first() {
        None => "none seen".to_owned(),
        Some(first) => {
            let cores: u32 = cpus.iter().map(|cpu| cpu.cores).sum();
            let threads: u32 = cpus.iter().map(|cpu| cpu.threads).sum();
            format!(
                "{} × {}, {cores} cores, {threads} threads",
                cpus.len(),
                format::cut(&first.model, 80)
            )
        }
    }
}

fn gpus(seen: &SeenFacts) -> Table {
    let row = |gpu: &muster_core::facts::Gpu| {
        vec![
            format::cut(&gpu.pci_address, 20),
            format::cut(gpu.model.as_deref().unwrap_or(&gpu.vendor), 60),
            format::cut(gpu.serial.as_deref().unwrap_or("–"), 40),
            gpu.memory_bytes.map_or("–".to_owned(), format::bytes),
        ]
    };
    build(
        "GPUs",
        vec!["PCI", "Model", "Serial", "Memory"],
        seen.facts.gpus.len(),
        seen.facts.gpus.iter().map(row),
    )
}

fn disks(seen: &SeenFacts) -> Table {
    let row = |disk: &muster_core::facts::Disk| {
        vec![
            format::cut(&disk.name, 30),
            format::cut(disk.model.as_deref().unwrap_or("–"), 60),
            format::cut(disk.serial.as_deref().unwrap_or("no serial"), 40),
            format!("{:?}", disk.transport).to_lowercase(),
            format::bytes(disk.size_bytes),
        ]
    };
    build(
        "Disks",
        vec!["Name", "Model", "Serial", "Bus", "Size"],
        seen.facts.disks.len(),
        seen.facts.disks.iter().map(row),
    )
}

fn nics(seen: &SeenFacts) -> Table {
    let row = |nic: &muster_core::facts::Nic| {
        let speed = nic.speed_mbps.map_or("–".to_owned(), |mbps| {
            format!("{} Gb/s", f64::from(mbps) / 1000.0)
        });
        vec![
            format::cut(&nic.name, 30),
            nic.mac.to_string(),
            format::cut(nic.driver.as_deref().unwrap_or("–"), 30),
            if nic.link_up {
                "up".to_owned()
            } else {
                "down".to_owned()
            },
            speed,
        ]
    };
    build(
        "Network interfaces",
        vec!["Name", "MAC", "Driver", "Link", "Speed"],
        seen.facts.nics.len(),
        seen.facts.nics.iter().map(row),
    )
}

fn neighbours(seen: &SeenFacts) -> Table {
    let row = |neighbour: &muster_core::facts::Neighbour| {
        vec![
            format::cut(&neighbour.nic, 30),
            format::cut(
                neighbour
                    .system_name
                    .as_deref()
                    .unwrap_or(&neighbour.chassis),
                60,
            ),
            format::cut(
                neighbour
                    .port_description
                    .as_ref()
                    .unwrap_or(&neighbour.port),
                60,
            ),
        ]
    };
    let all = &seen.facts.neighbours;
    build(
        "Switch ports",
        vec!["Interface", "Switch", "Port"],
        all.len(),
        all.iter().map(row),
    )
}

fn build(
    title: &str,
    heads: Vec<&'static str>,
    all: usize,
    rows: impl Iterator<Item = Vec<String>>,
) -> Table {
    Table {
        title: format!("{title}: {}", format::count_rows(all, MOST)),
        heads,
        rows: rows.take(MOST).collect(),
    }
}
