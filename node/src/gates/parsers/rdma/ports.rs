//! Ports of RDMA devices, as listed by the kernel: `/sys/class/infiniband/DEVICE/ports/NUMBER`
//! (Documentation/ABI/stable/sysfs-class-infiniband).

use std::fs;

use crate::machine::Machine;

const DEVICES: &str = "/sys/class/infiniband";
/// Enough for a word or a number.
const VALUE_MAX: u64 = 256;
/// Maximum ports of a node. A device has at most two ports.
const PORTS_MAX: usize = 256;

/// A port of an RDMA device.
pub(super) struct Port<'a> {
    /// `mlx5_0/1`.
    pub(super) name: String,
    path: String,
    machine: &'a Machine,
}

impl Port<'_> {
    /// Returns the content of a file in the port's folder, without the line end, or `None` for a
    /// missing file.
    ///
    /// # Errors
    /// Returns a sentence if the file is unreadable.
    pub(super) fn read(&self, file: &str) -> Result<Option<String>, String> {
        let read = self
            .machine
            .read(&format!("{}/{file}", self.path), VALUE_MAX)
            .map_err(|failure| failure.message)?;
        Ok(read.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// Returns whether the port has the folder.
    pub(super) fn has(&self, folder: &str) -> bool {
        self.machine
            .path(&format!("{}/{folder}", self.path))
            .is_dir()
    }

    /// Returns the names in a folder of the port.
    ///
    /// # Errors
    /// Returns a sentence if the folder is unreadable.
    pub(super) fn list(&self, folder: &str) -> Result<Vec<String>, String> {
        names(self.machine, &format!("{}/{folder}", self.path))
    }
}

/// Returns all ports of the node, sorted by device and number.
///
/// # Errors
/// Returns a sentence if the node has no port, or if the kernel's list is unreadable.
pub(super) fn all(machine: &Machine) -> Result<Vec<Port<'_>>, String> {
    let mut ports = Vec::new();
    if machine.path(DEVICES).is_dir() {
        for device in names(machine, DEVICES)? {
            for number in names(machine, &format!("{DEVICES}/{device}/ports"))? {
                let path = format!("{DEVICES}/{device}/ports/{number}");
                ports.push(Port {
                    name: format!("{device}/{number}"),
                    path,
                    machine,
                });
            }
        }
    }
    match ports.len() {
        0 => Err("the kernel knows no RDMA device".into()),
        1..=PORTS_MAX => Ok(ports),
        many => Err(format!("{many} RDMA ports are more than are read")),
    }
}

fn names(machine: &Machine, folder: &str) -> Result<Vec<String>, String> {
    let unreadable = |error: std::io::Error| format!("{folder}: {error}");
    let entries = fs::read_dir(machine.path(folder)).map_err(unreadable)?;
    let mut names = entries
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(unreadable)?;
    names.sort();
    Ok(names)
}
