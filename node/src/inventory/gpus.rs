//! GPUs: found by PCI alone, so that a GPU lost by its driver still counts; named by NVIDIA's tool
//! where installed.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::facts::{Gpu, PciDevice};

use super::text;
use crate::job::JobContext;
use crate::tool::{self, Call};

const NVIDIA: &str = "10de";
const AMD: &str = "1002";
/// Longest query: a hung driver must not hang the inventory.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the GPUs among the PCI functions: display and 3D controllers (0300, 0302, 0380) and
/// accelerators (1200) from makers of compute GPUs. A server's own VGA has another maker.
pub fn list(pci: &[PciDevice]) -> Vec<Gpu> {
    let is_gpu = |device: &&PciDevice| {
        let class = device.class.get(..4).unwrap_or_default();
        [NVIDIA, AMD].contains(&device.vendor.as_str())
            && ["0300", "0302", "0380", "1200"].contains(&class)
    };
    pci.iter().filter(is_gpu).map(by_pci).collect()
}

/// Fills in the names known to NVIDIA's tool, for GPUs with a driver. A hanging tool delays the
/// inventory by at most `QUERY_TIMEOUT`.
pub fn name(cx: &JobContext, pci: &[PciDevice], gpus: &mut [Gpu]) {
    let driven = |gpu: &Gpu| {
        pci.iter()
            .any(|device| device.address == gpu.pci_address && device.driver.is_some())
    };
    if !gpus.iter().any(|gpu| gpu.vendor == NVIDIA && driven(gpu)) {
        return;
    }
    let mut named = nvidia(cx);
    for gpu in gpus {
        if let Some(told) = named.remove(&gpu.pci_address) {
            *gpu = told;
        }
    }
}

fn by_pci(device: &PciDevice) -> Gpu {
    let base = format!("/sys/bus/pci/devices/{}", device.address);
    Gpu {
        pci_address: device.address.clone(),
        vendor: device.vendor.clone(),
        // Both files exist only with the amdgpu driver.
        model: text::line(format!("{base}/product_name")),
        serial: text::line(format!("{base}/serial_number")),
        memory_bytes: text::number(format!("{base}/mem_info_vram_total")),
    }
}

/// Returns the GPUs by PCI address in the form of sysfs; empty when the tool is absent or fails.
fn nvidia(cx: &JobContext) -> BTreeMap<String, Gpu> {
    let argv = [
        "nvidia-smi",
        "--query-gpu=pci.bus_id,name,serial,memory.total",
        "--format=csv,noheader,nounits",
    ];
    match tool::run(
        cx,
        &Call {
            argv: &argv,
            timeout: Some(QUERY_TIMEOUT),
            ..Call::default()
        },
    ) {
        Ok(done) if done.status.success() => parse_nvidia(&String::from_utf8_lossy(&done.stdout)),
        Ok(_) | Err(_) => BTreeMap::new(),
    }
}

/// Parses `00000000:18:00.0, NVIDIA H200, 1650000000000, 143771`: address, name, serial or `[N/A]`,
/// MiB. A row of another shape is skipped.
fn parse_nvidia(rows: &str) -> BTreeMap<String, Gpu> {
    let known = |field: &str| {
        text::clean(field).filter(|field| !field.starts_with('[') && field != "0" && field != "N/A")
    };
    let gpu = |row: &str| {
        let fields: Vec<&str> = row.split(',').map(str::trim).collect();
        let [address, name, serial, mebibytes] = fields[..] else {
            return None;
        };
        // NVIDIA writes the domain with eight digits in capitals; sysfs with four in lower case.
        let address = address.to_ascii_lowercase();
        let address = address
            .strip_prefix("0000")
            .filter(|short| short.len() == 12)
            .unwrap_or(&address)
            .to_owned();
        let gpu = Gpu {
            pci_address: text::clean(&address)?,
            vendor: NVIDIA.into(),
            model: known(name),
            serial: known(serial),
            memory_bytes: mebibytes
                .parse::<u64>()
                .ok()
                .and_then(|mebibytes| mebibytes.checked_mul(1 << 20)),
        };
        Some((address, gpu))
    };
    rows.lines().filter_map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidia_rows_are_keyed_as_sysfs_writes_addresses() {
        let rows = "00000000:1B:00.0, NVIDIA H200, 1650424000111, 143771\n00000001:00:00.0, NVIDIA A10, [N/A], [N/A]\nNo devices were found\n";
        let gpus = parse_nvidia(rows);
        assert_eq!(gpus.len(), 2);
        assert_eq!(
            gpus["0000:1b:00.0"].serial.as_deref(),
            Some("1650424000111")
        );
        assert_eq!(gpus["0000:1b:00.0"].memory_bytes, Some(143_771 << 20));
        assert_eq!(
            (
                &gpus["0001:00:00.0"].serial,
                gpus["0001:00:00.0"].memory_bytes
            ),
            (&None, None)
        );
    }
}
