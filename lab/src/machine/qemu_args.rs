//! QEMU's command line for a boot. Paths are relative because QEMU runs in the machine's directory.

use super::accel::Accel;
use super::firmware::BootOrder;
use super::launch::Boot;
use super::ovmf::UEFI_CODE;
use crate::plan::{DiskKind, DiskPlan, FirmwareKind, MachinePlan};

/// Name of QEMU's control socket. The lab listens and QEMU connects, so no message is lost.
pub(crate) const QMP_SOCKET: &str = "qmp.sock";
/// Name of the socket for QEMU's serial line; the lab listens here too.
pub(crate) const SERIAL_SOCKET: &str = "serial.sock";
/// Name of the machine's copy of OVMF's variables.
pub(crate) const UEFI_VARIABLES: &str = "uefi-variables.fd";

/// Returns the file name of a disk.
pub(crate) fn disk_file(disk: &DiskPlan) -> String {
    format!("{}.raw", disk.serial)
}

/// Returns the QOM name of a disk.
pub(crate) fn disk_id(index: usize) -> String {
    format!("disk{index}")
}

/// Returns the name of the tap for the machine's second network card, from the first tap's name.
pub(crate) fn second_tap(tap: &str) -> String {
    format!("{tap}b")
}

/// Returns QEMU's arguments for a boot.
pub(crate) fn arguments(plan: &MachinePlan, tap: &str, accel: Accel, boot: Boot) -> Vec<String> {
    let order = device_order(plan, boot.order);
    let mut arguments: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    add("-name", plan.name.to_string());
    // Without graphics, SeaBIOS and its boot ROMs write to the serial line.
    add("-machine", "q35,graphics=off".to_owned());
    add("-accel", accel.argument().to_owned());
    add("-cpu", accel.cpu().to_owned());
    add("-smp", plan.vcpus.to_string());
    add("-m", plan.memory_mib.to_string());
    add("-rtc", "base=utc".to_owned());
    // A reset by the guest ends this QEMU. The next boot reads the firmware settings again and
    // starts a new QEMU.
    add("-action", "reboot=shutdown".to_owned());
    identity(plan, &mut add);
    firmware_arguments(plan, &mut add);
    control_arguments(&mut add);
    network_arguments(plan, tap, &order.network, &mut add);
    for (index, disk) in plan.disks.iter().enumerate() {
        disk_arguments(index, disk, &order.disks[index], &mut add);
    }
    let mut all: Vec<String> = [
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-vga",
        "none",
    ]
    .map(str::to_owned)
    .into();
    all.append(&mut arguments);
    all
}

fn firmware_arguments(plan: &MachinePlan, add: &mut impl FnMut(&str, String)) {
    if plan.firmware == FirmwareKind::Uefi {
        add(
            "-drive",
            format!("if=pflash,unit=0,format=raw,readonly=on,file={UEFI_CODE}"),
        );
        add(
            "-drive",
            format!("if=pflash,unit=1,format=raw,file={UEFI_VARIABLES}"),
        );
    }
}

/// Adds the serial line, QEMU's control socket, and a source of random numbers.
fn control_arguments(add: &mut impl FnMut(&str, String)) {
    add(
        "-chardev",
        format!("socket,id=serial0,path={SERIAL_SOCKET}"),
    );
    add("-serial", "chardev:serial0".to_owned());
    add("-chardev", format!("socket,id=qmp0,path={QMP_SOCKET}"));
    add("-mon", "chardev=qmp0,mode=control".to_owned());
    add("-device", "virtio-rng-pci".to_owned());
}

fn network_arguments(
    plan: &MachinePlan,
    tap: &str,
    bootindex: &str,
    add: &mut impl FnMut(&str, String),
) {
    add(
        "-netdev",
        format!("tap,id=net0,ifname={tap},script=no,downscript=no"),
    );
    add(
        "-device",
        format!(
            "virtio-net-pci,id=nic0,netdev=net0,mac={}{bootindex}",
            plan.mac
        ),
    );
    if let Some(mac) = plan.second_mac {
        add(
            "-netdev",
            format!(
                "tap,id=net1,ifname={},script=no,downscript=no",
                second_tap(tap)
            ),
        );
        // The card is at SECOND_NIC_PCI, after all devices with a boot order, and has no boot ROM.
        add(
            "-device",
            format!("virtio-net-pci,id=nic1,netdev=net1,mac={mac},addr=0x10,romfile="),
        );
    }
}

fn identity(plan: &MachinePlan, add: &mut impl FnMut(&str, String)) {
    let MachinePlan {
        manufacturer,
        product,
        serial,
        uuid,
        ..
    } = plan;
    add("-uuid", uuid.to_string());
    add(
        "-smbios",
        format!(
            "type=1,manufacturer={manufacturer},product={product},serial={serial},uuid={uuid},sku={serial}-SKU"
        ),
    );
    add(
        "-smbios",
        format!("type=2,manufacturer={manufacturer},product={product} Board,serial={serial}-B"),
    );
    add(
        "-smbios",
        format!("type=3,manufacturer={manufacturer},serial={serial}-C"),
    );
}

/// Adds a disk. `cache=unsafe` keeps writes flushed by the guest in the host's page cache. Killing
/// QEMU loses no data; a crash of the host ends the whole lab anyway.
fn disk_arguments(
    index: usize,
    disk: &DiskPlan,
    bootindex: &str,
    add: &mut impl FnMut(&str, String),
) {
    let (id, file, serial) = (disk_id(index), disk_file(disk), &disk.serial);
    add(
        "-drive",
        format!(
            "if=none,id=file{index},format=raw,cache=unsafe,discard=unmap,detect-zeroes=unmap,file={file}"
        ),
    );
    match disk.kind {
        DiskKind::Virtio => add(
            "-device",
            format!("virtio-blk-pci,id={id},drive=file{index},serial={serial}{bootindex}"),
        ),
        DiskKind::Nvme => {
            add(
                "-device",
                format!("pcie-root-port,id=port{index},chassis={index},slot={index}"),
            );
            add(
                "-device",
                format!(
                    "nvme,id={id},bus=port{index},drive=file{index},serial={serial}{bootindex}"
                ),
            );
        }
    }
}

/// `,bootindex=N` for each device. The text is empty where the UEFI firmware follows its own
/// variables.
struct DeviceOrder {
    network: String,
    disks: Vec<String>,
}

/// Computes the boot order. NVMe disks come first, so BIOS drive 0x80 is the first NVMe disk, as
/// with a board's "hard disk order" setting.
fn device_order(plan: &MachinePlan, order: BootOrder) -> DeviceOrder {
    if order == BootOrder::Own && plan.firmware == FirmwareKind::Uefi {
        return DeviceOrder {
            network: String::new(),
            disks: vec![String::new(); plan.disks.len()],
        };
    }
    let (network, first_disk) = match order {
        BootOrder::Own | BootOrder::NetworkFirst => (1, 2),
        BootOrder::DisksFirst => (plan.disks.len() + 1, 1),
    };
    let rank = |index: usize| {
        let key = |index: usize| (plan.disks[index].kind != DiskKind::Nvme, index);
        (0..plan.disks.len())
            .filter(|other| key(*other) < key(index))
            .count()
    };
    let disks = (0..plan.disks.len())
        .map(|index| format!(",bootindex={}", first_disk + rank(index)))
        .collect();
    DeviceOrder {
        network: format!(",bootindex={network}"),
        disks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RackPlan;

    fn command_line(machine: usize, order: BootOrder) -> String {
        let plan = RackPlan::reference();
        arguments(
            &plan.machines[machine],
            "tap0",
            Accel::Tcg,
            Boot { number: 1, order },
        )
        .join(" ")
    }

    #[test]
    fn bios_tries_the_network_then_nvme_then_the_decoy() {
        let line = command_line(1, BootOrder::Own);
        for part in [
            "mac=52:54:00:4d:55:02,bootindex=1",
            "NVME-A-2,bootindex=2",
            "NVME-B-2,bootindex=3",
            "DECOY-2,bootindex=4",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(!line.contains("pflash"));
        let second = "ifname=tap0b,script=no,downscript=no -device virtio-net-pci,id=nic1,netdev=net1,mac=52:54:00:4d:56:02,addr=0x10,romfile= ";
        assert!(line.contains(second), "{line}");
        assert!(
            !command_line(2, BootOrder::Own).contains("net1"),
            "the third machine has one card"
        );
    }

    #[test]
    fn uefi_without_an_override_follows_its_own_variables() {
        assert!(!command_line(0, BootOrder::Own).contains("bootindex"));
        assert!(command_line(0, BootOrder::DisksFirst).contains("NVME-A-1,bootindex=1"));
        assert!(
            command_line(0, BootOrder::NetworkFirst).contains("mac=52:54:00:4d:55:01,bootindex=1")
        );
    }
}
