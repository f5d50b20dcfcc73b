//! The hardware fingerprint of a result. A replaced board, disk, DIMM or GPU, or changed firmware,
//! invalidates earlier measurements.

use crate::facts::Facts;
use crate::values::Digest;

/// Returns a digest over serial numbers and firmware versions. The order of discovery and the names
/// given by the kernel do not change the digest.
pub fn fingerprint(facts: &Facts) -> Digest {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let smbios = &facts.smbios;
    let mut parts = vec![
        (
            "system",
            vec![
                text(&smbios.uuid),
                text(&smbios.serial),
                text(&smbios.product),
            ],
        ),
        ("board", vec![text(&smbios.board_serial)]),
        ("chassis", vec![text(&smbios.chassis_serial)]),
        ("firmware", vec![text(&smbios.bios_version)]),
    ];
    parts.extend(facts.cpus.iter().map(|cpu| {
        (
            "cpu",
            vec![
                cpu.model.clone(),
                cpu.cores.to_string(),
                cpu.threads.to_string(),
            ],
        )
    }));
    parts.extend(facts.memory.modules.iter().map(|dimm| {
        (
            "dimm",
            vec![
                dimm.locator.clone(),
                dimm.size_bytes.to_string(),
                text(&dimm.serial),
                text(&dimm.part_number),
            ],
        )
    }));
    parts.extend(facts.disks.iter().map(|disk| {
        (
            "disk",
            vec![
                text(&disk.serial),
                text(&disk.model),
                disk.size_bytes.to_string(),
            ],
        )
    }));
    parts.extend(
        facts
            .nics
            .iter()
            .map(|nic| ("nic", vec![nic.mac.to_string()])),
    );
    parts.extend(
        facts
            .gpus
            .iter()
            .map(|gpu| ("gpu", vec![gpu.pci_address.clone(), text(&gpu.serial)])),
    );
    parts.sort();
    // JSON keeps the borders between the parts, so two different lists never produce the same
    // bytes.
    Digest::of(&serde_json::to_vec(&parts).expect("parts are only strings"))
}
