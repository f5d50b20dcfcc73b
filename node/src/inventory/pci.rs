//! PCI functions and the state of their links. Ids are four hex digits, the class six, both without
//! `0x`.

use muster_core::facts::PciDevice;

use super::text;

const FOLDER: &str = "/sys/bus/pci/devices";
/// Most functions listed; a DGX has a few hundred.
const DEVICES_MAX: usize = 4096;

/// Returns all functions, by address.
pub fn list() -> Vec<PciDevice> {
    text::names(FOLDER)
        .iter()
        .take(DEVICES_MAX)
        .filter_map(|address| device(address))
        .collect()
}

fn device(address: &str) -> Option<PciDevice> {
    let base = format!("{FOLDER}/{address}");
    let id = |name: &str| {
        text::line(format!("{base}/{name}")).map(|id| id.trim_start_matches("0x").to_owned())
    };
    // Without a link the kernel reports 0 or 255 lanes, and "Unknown".
    let width = |name: &str| {
        text::number(format!("{base}/{name}")).filter(|&lanes| lanes > 0 && lanes < 255)
    };
    let speed = |name: &str| {
        text::line(format!("{base}/{name}")).filter(|speed| !speed.starts_with("Unknown"))
    };
    Some(PciDevice {
        address: text::clean(address)?,
        class: id("class")?,
        vendor: id("vendor")?,
        device: id("device")?,
        driver: text::link_name(format!("{base}/driver")),
        link_width: width("current_link_width"),
        link_width_max: width("max_link_width"),
        link_speed: speed("current_link_speed"),
        link_speed_max: speed("max_link_speed"),
    })
}
