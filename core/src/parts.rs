//! Boards, GPUs, NICs, disks and DIMMs by serial number: the facts that can be tracked from slot to
//! slot and from node to node.

use std::collections::BTreeMap;

use crate::facts::Facts;
use crate::words;

/// Maximum parts per server, above any real server. Further parts reported by a machine are
/// ignored.
const MOST: usize = 1024;
/// Maximum characters kept of a serial number, slot or model.
const LONGEST: usize = 128;

words! {
    /// The kind of a part.
    #[derive(PartialOrd, Ord)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    PartKind, "kind of part" {
        Chassis = "chassis",
        Board = "board",
        Gpu = "gpu",
        /// Identified by its MAC address.
        Nic = "nic",
        Disk = "disk",
        Dimm = "dimm",
    }
}

/// A part observed by an inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub kind: PartKind,
    pub serial: String,
    /// The location: a PCI address, or a DIMM's locator.
    pub slot: Option<String>,
    pub model: Option<String>,
}

/// Returns the parts of an inventory with a serial number, each once.
pub fn seen_in(facts: &Facts) -> Vec<Part> {
    let mut parts: BTreeMap<(PartKind, String), Part> = BTreeMap::new();
    let mut add = |kind, serial: Option<&str>, slot: Option<&str>, model: Option<&str>| {
        let Some(serial) = serial.and_then(keep_meaningful) else {
            return;
        };
        let part = Part {
            kind,
            serial: serial.clone(),
            slot: slot.and_then(keep_meaningful),
            model: model.and_then(keep_meaningful),
        };
        parts.entry((kind, serial)).or_insert(part);
    };
    let smbios = &facts.smbios;
    let product = smbios.product.as_deref();
    add(
        PartKind::Chassis,
        smbios
            .chassis_serial
            .as_deref()
            .or(smbios.serial.as_deref()),
        None,
        product,
    );
    add(
        PartKind::Board,
        smbios.board_serial.as_deref(),
        None,
        product,
    );
    for disk in &facts.disks {
        add(
            PartKind::Disk,
            disk.serial.as_deref(),
            disk.pci_address.as_deref(),
            disk.model.as_deref(),
        );
    }
    for nic in &facts.nics {
        add(
            PartKind::Nic,
            Some(&nic.mac.to_string()),
            nic.pci_address.as_deref(),
            nic.driver.as_deref(),
        );
    }
    for gpu in &facts.gpus {
        add(
            PartKind::Gpu,
            gpu.serial.as_deref(),
            Some(&gpu.pci_address),
            gpu.model.as_deref(),
        );
    }
    for module in &facts.memory.modules {
        add(
            PartKind::Dimm,
            module.serial.as_deref(),
            Some(&module.locator),
            module.part_number.as_deref(),
        );
    }
    parts.into_values().take(MOST).collect()
}

/// Returns the text if meaningful. Vendors leave filler words in unused fields, and such texts give
/// `None`.
pub(crate) fn keep_meaningful(text: &str) -> Option<String> {
    let text: String = text
        .trim()
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST)
        .collect();
    let filler = [
        "",
        "none",
        "null",
        "empty",
        "invalid",
        "unknown",
        "n/a",
        "not available",
        "not applicable",
        "not specified",
        "default string",
        "to be filled by o.e.m.",
        "o.e.m.",
        "serial number",
        "system serial number",
        "chassis serial number",
        "base board serial number",
        "no dimm",
    ];
    let nothing = text.chars().all(|c| matches!(c, '0' | '-' | '.' | 'x'));
    let is_filler = filler.contains(&text.to_ascii_lowercase().as_str());
    (!nothing && !is_filler && !is_pattern(&text)).then_some(text)
}

/// Returns whether a text repeats a single character, or only counts upwards: `XXXXXXXX`,
/// `0123456789`.
fn is_pattern(text: &str) -> bool {
    let bytes: Vec<u8> = text.bytes().filter(u8::is_ascii_alphanumeric).collect();
    let follows = |step: u8| {
        bytes.windows(2).all(|pair| match pair {
            [before, after] if step == 0 => before.eq_ignore_ascii_case(after),
            [b'9', b'0'] => true,
            [before, after] => before.is_ascii_digit() && before.wrapping_add(step) == *after,
            _ => false,
        })
    };
    (bytes.len() >= 4 && follows(0)) || (bytes.len() >= 6 && follows(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Disk, Memory, MemoryModule};

    #[test]
    fn what_has_no_serial_of_its_own_is_not_followed() {
        let disk = |serial: Option<&str>| Disk {
            serial: serial.map(str::to_owned),
            ..Disk::default()
        };
        let module = |locator: &str, serial: &str| MemoryModule {
            locator: locator.into(),
            serial: Some(serial.into()),
            ..MemoryModule::default()
        };
        let facts = Facts {
            disks: vec![
                disk(Some("S1")),
                disk(None),
                disk(Some(" S1 ")),
                disk(Some("To Be Filled By O.E.M.")),
            ],
            memory: Memory {
                modules: vec![module("A1", "00000000"), module("A2", "D2")],
                ..Memory::default()
            },
            ..Facts::default()
        };
        let seen: Vec<(PartKind, String, Option<String>)> = seen_in(&facts)
            .into_iter()
            .map(|part| (part.kind, part.serial, part.slot))
            .collect();
        let expected = [
            (PartKind::Disk, "S1".to_owned(), None),
            (PartKind::Dimm, "D2".to_owned(), Some("A2".to_owned())),
        ];
        assert_eq!(seen, expected);
    }
}
