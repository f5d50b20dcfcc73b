//! The parts of a machine that muster-node reads and writes, as files: the kernel's view of the hardware, the disk, and the tools.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::machine::NIC;

/// The serial of the disk that images go onto.
const DISK: &str = "ROOT1";
/// Bytes of the disk.
const DISK_BYTES: usize = 48 << 20;
/// Programs of this host that muster-node and the agent's commands use.
const TOOLS: [&str; 20] = [
    "sh",
    "cat",
    "sed",
    "sha256sum",
    "chmod",
    "mv",
    "rm",
    "rmdir",
    "mkdir",
    "touch",
    "grep",
    "ln",
    "basename",
    "head",
    "tail",
    "true",
    "ssh-keygen",
    "sgdisk",
    "sfdisk",
    "id",
];
/// Programs that would change this host: machine.sh stands in for them.
const STAND_INS: [&str; 9] = [
    "systemctl",
    "mount",
    "umount",
    "blockdev",
    "udevadm",
    "e2fsck",
    "resize2fs",
    "chroot",
    "ip",
];

/// Writes the kernel's view of a machine with a processor, an interface with a link, and a disk.
pub(super) fn build_hardware(folder: &Path, table: &[u8]) {
    let put = |path: &str, bytes: &[u8]| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    put(
        "sys/devices/system/cpu/cpu0/topology/physical_package_id",
        b"0\n",
    );
    put(
        "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
        b"0\n",
    );
    put("sys/firmware/dmi/tables/DMI", table);
    put("sys/class/net/eth0/address", format!("{NIC}\n").as_bytes());
    put("sys/class/net/eth0/carrier", b"1\n");
    put("sys/class/net/eth0/device/vendor", b"0x1af4\n");
    put(
        "sys/block/vda/size",
        (DISK_BYTES / 512).to_string().as_bytes(),
    );
    put("sys/block/vda/serial", DISK.as_bytes());
    put("sys/block/vda/device/vendor", b"0x1af4\n");
    put("dev/vda", &vec![0; DISK_BYTES]);
    for partition in ["dev/vda1", "dev/vda2"] {
        put(partition, b"");
    }
}

/// A system information structure of SMBIOS (type 1) and the end of the table (type 127).
pub(super) fn firmware_table(uuid: uuid::Uuid, serial: &str) -> Vec<u8> {
    let head: [u8; 8] = [1, 24, 0, 0, 1, 2, 0, 3];
    let strings = format!("Muster\0Virtual\0{serial}\0\0");
    [
        &head[..],
        &uuid.to_bytes_le(),
        strings.as_bytes(),
        &[127, 4, 0, 0, 0, 0],
    ]
    .concat()
}

/// Fills the machine's folder of programs.
pub(super) fn build_tools(machine: &Path) {
    let tools = machine.join("tools");
    std::fs::create_dir(&tools).unwrap();
    for name in TOOLS {
        let places =
            ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].map(|place| Path::new(place).join(name));
        let tool = places.iter().find(|path| path.exists());
        let tool = tool.unwrap_or_else(|| panic!("{name} is not installed"));
        symlink(tool, tools.join(name)).unwrap();
    }
    for name in STAND_INS {
        put_program(
            &tools.join(name),
            &format!("#!/bin/sh\n{}", include_str!("machine.sh")),
        );
    }
}

pub(super) fn put_program(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}
