//! Cleans text reported by hardware: serials and names are untrusted input.

use std::path::Path;

use crate::{files, paths};

/// Longest fact, in characters.
const MAX: usize = 256;
/// Longest sysfs or procfs attribute read, in bytes.
const FILE_MAX: u64 = 4096;

/// Removes control characters and outer blanks, and caps the length; `None` for an empty rest.
pub fn clean(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let text: String = text.trim().chars().take(MAX).collect();
    let text = text.trim_end();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Reads a one-value attribute of sysfs or procfs; `None` when absent, empty or unreadable.
pub fn line(path: impl AsRef<Path>) -> Option<String> {
    clean(&String::from_utf8_lossy(&bytes(path)?))
}

/// Reads a number, as [`line()`].
pub fn number<T: std::str::FromStr>(path: impl AsRef<Path>) -> Option<T> {
    line(path)?.parse().ok()
}

/// Reads the raw bytes, as [`line()`].
pub fn bytes(path: impl AsRef<Path>) -> Option<Vec<u8>> {
    files::read_capped(&paths::at(path.as_ref().to_str()?), FILE_MAX).ok()
}

/// Returns the last part of a link's target, such as a driver's name.
pub fn link_name(path: impl AsRef<Path>) -> Option<String> {
    let target = std::fs::read_link(paths::at(path.as_ref().to_str()?)).ok()?;
    clean(target.file_name()?.to_str()?)
}

/// Returns the names in a folder, sorted, so that two inventories of a machine are comparable.
pub fn names(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(paths::at(folder))
        .into_iter()
        .flatten()
        .flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Returns the PCI function of a device: the last address in the device's real path, such as
/// `0000:3b:00.0`.
pub fn pci_address(device: &str) -> Option<String> {
    let path = std::fs::canonicalize(paths::at(device)).ok()?;
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    parts
        .into_iter()
        .rev()
        .find(|part| is_pci_address(part))
        .and_then(clean)
}

fn is_pci_address(part: &str) -> bool {
    let shape: Vec<&str> = part.split([':', '.']).collect();
    let lengths: Vec<usize> = shape.iter().map(|piece| piece.len()).collect();
    let hex = shape
        .iter()
        .all(|piece| piece.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hex && matches!(lengths[..], [4..=8, 2, 2, 1]) && part.matches(':').count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_length_do_not_pass() {
        assert_eq!(clean("  S\u{1b}[31m1\0\n"), Some("S[31m1".into()));
        assert_eq!(clean(" \u{7} "), None);
        assert_eq!(clean(&"x".repeat(1000)).map(|text| text.len()), Some(MAX));
    }

    #[test]
    fn pci_addresses_are_told_from_other_path_parts() {
        assert!(is_pci_address("0000:3b:00.0") && is_pci_address("10000:e1:00.0"));
        for other in ["pci0000:3a", "virtio0", "0:0:0:0", "0000.3b.00:0", ""] {
            assert!(!is_pci_address(other), "{other}");
        }
    }
}
