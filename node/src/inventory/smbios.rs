//! The firmware's tables (DMTF DSP0134): the machine's identity and its memory modules. Bounds are
//! checked on every access, because firmware data is unreliable.

use muster_core::facts::{MemoryModule, Smbios};

use super::text;
use crate::{files, paths};

/// Longest table read, in bytes; real tables are below 64 KiB.
const TABLE_MAX: u64 = 1 << 20;
/// Most structures read.
const STRUCTURES_MAX: usize = 8192;
/// Most memory modules kept.
const MODULES_MAX: usize = 1024;
/// Placeholders written by vendors for a missing value.
const FILLERS: [&str; 9] = [
    "not specified",
    "not available",
    "to be filled by o.e.m.",
    "default string",
    "system serial number",
    "none",
    "n/a",
    "unknown",
    "no dimm",
];

/// The content of the tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    pub identity: Smbios,
    /// `None` without any type 17 structure; empty slots give an empty list instead.
    pub modules: Option<Vec<MemoryModule>>,
}

/// Reads the tables exported by the kernel; all values are unknown without exported tables.
pub fn read() -> Tables {
    let bytes = files::read_capped(&paths::at("/sys/firmware/dmi/tables/DMI"), TABLE_MAX);
    parse(&bytes.unwrap_or_default())
}

/// Parses a structure table. Parsing stops at the first invalid structure; earlier structures are
/// kept.
pub fn parse(table: &[u8]) -> Tables {
    let mut tables = Tables::default();
    for structure in structures(table) {
        let identity = &mut tables.identity;
        match structure.kind {
            0 => first(&mut identity.bios_version, structure.string(0x05)),
            1 => {
                first(&mut identity.manufacturer, structure.string(0x04));
                first(&mut identity.product, structure.string(0x05));
                first(&mut identity.serial, structure.string(0x07));
                first(&mut identity.uuid, structure.uuid(0x08));
            }
            2 => first(&mut identity.board_serial, structure.string(0x07)),
            3 => first(&mut identity.chassis_serial, structure.string(0x07)),
            17 => {
                let modules = tables.modules.get_or_insert_default();
                if let Some(module) = structure.module().filter(|_| modules.len() < MODULES_MAX) {
                    modules.push(module);
                }
            }
            _ => {}
        }
    }
    tables
}

/// Keeps the first value: blades list the enclosure after the board, so the first of a kind belongs
/// to the machine.
fn first(slot: &mut Option<String>, value: Option<String>) {
    if slot.is_none() {
        *slot = value;
    }
}

/// A structure: its formatted area, header included, and its strings.
struct Structure<'a> {
    kind: u8,
    area: &'a [u8],
    strings: &'a [u8],
}

fn structures(mut table: &[u8]) -> impl Iterator<Item = Structure<'_>> {
    let next = move || {
        let (kind, length) = (*table.first()?, usize::from(*table.get(1)?));
        // Type 127 ends the table. A header has four bytes, so a shorter structure is invalid.
        if kind == 127 || length < 4 {
            return None;
        }
        let area = table.get(..length)?;
        let rest = &table[length..];
        // An empty string ends the strings; a structure without strings has two zero bytes.
        let end = rest.windows(2).position(|pair| pair == [0, 0])?;
        table = &rest[end + 2..];
        Some(Structure {
            kind,
            area,
            strings: &rest[..end],
        })
    };
    std::iter::from_fn(next).take(STRUCTURES_MAX)
}

impl Structure<'_> {
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.area.get(offset..offset + N)?.try_into().ok()
    }

    /// Returns the string with the number at `offset`; number 0 means none.
    fn string(&self, offset: usize) -> Option<String> {
        let [number] = self.bytes(offset)?;
        let raw = self
            .strings
            .split(|&byte| byte == 0)
            .nth(usize::from(number).checked_sub(1)?)?;
        let value = text::clean(&String::from_utf8_lossy(raw))?;
        (!FILLERS.contains(&value.to_ascii_lowercase().as_str())).then_some(value)
    }

    /// Returns a UUID; the first three fields are little-endian (7.2.1). All zeros and all ones
    /// mean no UUID.
    fn uuid(&self, offset: usize) -> Option<String> {
        let bytes: [u8; 16] = self.bytes(offset)?;
        if bytes == [0; 16] || bytes == [0xff; 16] {
            return None;
        }
        Some(uuid::Uuid::from_bytes_le(bytes).to_string())
    }

    /// Returns a memory device (7.18); `None` for an empty slot, or for a size unknown to the
    /// firmware.
    fn module(&self) -> Option<MemoryModule> {
        let size = match u16::from_le_bytes(self.bytes(0x0c)?) {
            0 | 0xffff => return None,
            0x7fff => u64::from(u32::from_le_bytes(self.bytes(0x1c)?) & 0x7fff_ffff) << 20,
            kib if kib & 0x8000 != 0 => u64::from(kib & 0x7fff) << 10,
            mib => u64::from(mib) << 20,
        };
        Some(MemoryModule {
            locator: self.string(0x10).unwrap_or_default(),
            size_bytes: size,
            serial: self.string(0x18),
            part_number: self.string(0x1a),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn structure(kind: u8, body: &[u8], strings: &[&str]) -> Vec<u8> {
        let mut bytes = vec![kind, u8::try_from(body.len() + 4).unwrap(), 0, 0];
        bytes.extend(body);
        for string in strings {
            bytes.extend(string.as_bytes());
            bytes.push(0);
        }
        bytes.extend(if strings.is_empty() {
            &[0, 0][..]
        } else {
            &[0][..]
        });
        bytes
    }

    fn machine() -> Vec<u8> {
        let uuid = [
            0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd,
            0xee, 0xff,
        ];
        let system: Vec<u8> = [&[1, 2, 0, 3][..], &uuid].concat();
        let mut dimm = vec![0; 0x24];
        dimm[0x08..0x0a].copy_from_slice(&0x7fff_u16.to_le_bytes());
        dimm[0x0c] = 1;
        dimm[0x14] = 2;
        dimm[0x16] = 3;
        dimm[0x18..0x1c].copy_from_slice(&65536_u32.to_le_bytes());
        let empty_slot = vec![0; 0x24];
        [
            structure(1, &system, &["ACME", "GPU box", "SN-1"]),
            structure(2, &[1, 1, 0, 2], &["ACME", "Not Specified"]),
            structure(3, &[0, 0, 0, 1], &["CH-1"]),
            structure(17, &dimm, &["DIMM A1", "D-1", "PART\u{7}-1"]),
            structure(17, &empty_slot, &[]),
            structure(127, &[], &[]),
            structure(3, &[0, 0, 0, 1], &["after the end"]),
        ]
        .concat()
    }

    #[test]
    fn identity_and_modules_are_read() {
        let tables = parse(&machine());
        assert_eq!(
            tables.identity.uuid.as_deref(),
            Some("00112233-4455-6677-8899-aabbccddeeff")
        );
        assert_eq!(tables.identity.serial.as_deref(), Some("SN-1"));
        assert_eq!(tables.identity.board_serial, None);
        assert_eq!(tables.identity.chassis_serial.as_deref(), Some("CH-1"));
        let modules = tables.modules.unwrap();
        assert_eq!(modules.len(), 1);
        assert_eq!(modules[0].size_bytes, 64 << 30);
        assert_eq!(modules[0].part_number.as_deref(), Some("PART-1"));
    }

    proptest! {
        #[test]
        fn no_table_breaks_the_parser(table in proptest::collection::vec(any::<u8>(), 0..4096)) {
            parse(&table);
        }

        /// Random bytes rarely look like structures, so a real table is damaged instead.
        #[test]
        fn no_damage_breaks_the_parser(at in 0_usize..200, with in any::<u8>(), keep in 0_usize..400) {
            let mut table = machine();
            table.truncate(keep);
            if let Some(byte) = table.get_mut(at) {
                *byte = with;
            }
            let tables = parse(&table);
            prop_assert!(tables.identity.serial.is_none_or(|serial| serial.len() <= 4 * 256));
        }
    }
}
