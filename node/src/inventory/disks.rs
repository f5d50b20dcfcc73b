//! Block devices that could hold an operating system: whole, writable, with hardware behind them.

use muster_core::facts::{Disk, DiskTransport};

use super::text;
use crate::paths;

/// Most disks listed; a larger number on a machine is not plausible.
const DISKS_MAX: usize = 1024;
/// Unit of sysfs sizes in bytes, independent of the disk's own sector size.
const SECTOR: u64 = 512;

/// Returns all disks of the machine, by kernel name.
pub fn list() -> Vec<Disk> {
    text::names("/sys/block")
        .iter()
        .filter_map(|name| disk(name))
        .take(DISKS_MAX)
        .collect()
}

fn disk(name: &str) -> Option<Disk> {
    let base = format!("/sys/block/{name}");
    let attribute = |path: &str| text::line(format!("{base}/{path}"));
    // Only hardware has a device link: loop, ram, zram, dm, md and nbd have none. Optical and
    // floppy drives and hidden NVMe paths have a link too, and are skipped below.
    let has_device = paths::at(&base).join("device").exists();
    let unfit = ["sr", "fd", "mtd"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || attribute("hidden").as_deref() == Some("1");
    let size_bytes = attribute("size")?
        .parse::<u64>()
        .ok()?
        .checked_mul(SECTOR)?;
    if !has_device || unfit || size_bytes == 0 || attribute("ro").as_deref() == Some("1") {
        return None;
    }
    Some(Disk {
        name: text::clean(name)?,
        serial: attribute("device/serial")
            .or_else(|| attribute("serial"))
            .or_else(|| unit_serial(&text::bytes(format!("{base}/device/vpd_pg80"))?)),
        model: attribute("device/model"),
        wwn: attribute("wwid").or_else(|| attribute("device/wwid")),
        transport: transport(&base, name),
        size_bytes,
        rotational: attribute("queue/rotational").as_deref() == Some("1"),
        pci_address: text::pci_address(&base),
    })
}

/// Reads the unit serial number page: a header of four bytes, with the length in the last two
/// (SPC-4, 7.8.15).
fn unit_serial(page: &[u8]) -> Option<String> {
    let [_, 0x80, high, low, serial @ ..] = page else {
        return None;
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    text::clean(&String::from_utf8_lossy(serial.get(..length)?))
}

fn transport(base: &str, name: &str) -> DiskTransport {
    let path = std::fs::canonicalize(paths::at(base)).unwrap_or_default();
    let has = |prefix: &str| {
        path.iter()
            .any(|part| part.to_str().is_some_and(|part| part.starts_with(prefix)))
    };
    match () {
        () if name.starts_with("nvme") => DiskTransport::Nvme,
        () if has("usb") => DiskTransport::Usb,
        () if has("ata") => DiskTransport::Sata,
        () if has("end_device-") || paths::at(base).join("device/sas_address").exists() => {
            DiskTransport::Sas
        }
        () if has("virtio") => DiskTransport::Virtio,
        () => DiskTransport::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_page_is_read_within_its_own_length() {
        assert_eq!(unit_serial(b"\0\x80\0\x04 S1 rest"), Some("S1".into()));
        for bad in [&b"\0\x80\xff\xffS1"[..], b"\0\x83\0\x02S1", b"\0\x80", b""] {
            assert_eq!(unit_serial(bad), None);
        }
    }
}
