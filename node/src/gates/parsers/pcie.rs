//! PCIe links of storage, network and accelerator functions. Gates compare the width with the
//! profile and with the link's own maximum, because a port trained down reports its lower width as
//! the maximum. The speed of an idle GPU drops by design and counts only under load. Network cards
//! keep their speed.

use muster_core::facts::PciDevice;

use super::{Bench, Reading};

/// Base classes 01 mass storage, 02 network, 03 display, 12 processing accelerator (PCI Code and ID
/// Assignment, 1.1).
const CLASSES: [&str; 4] = ["01", NETWORK, "03", "12"];
const NETWORK: &str = "02";

pub(super) fn measure(bench: &Bench<'_>) -> Reading {
    let mut reading = Reading::default();
    let is_ours = |device: &&PciDevice| CLASSES.iter().any(|class| device.class.starts_with(class));
    for device in bench.facts.pci.iter().filter(is_ours) {
        let Some(width) = device.link_width else {
            continue;
        };
        let address = device.address.as_str();
        reading.add_of("pcie.width", address, width);
        if let Some(max) = device.link_width_max {
            reading.add_of("pcie.width_lost", address, max.saturating_sub(width));
        }
        if let Some(speed) = device.link_speed.as_deref().and_then(gigatransfers) {
            reading.add_of("pcie.speed", address, speed);
            if device.class.starts_with(NETWORK) {
                reading.add_of("pcie.nic_speed", address, speed);
            }
        }
        let max = device
            .link_width_max
            .map_or("?".to_owned(), |max| max.to_string());
        let speed = device.link_speed.as_deref().unwrap_or("?");
        reading
            .notes
            .push(format!("{address}: {width} of {max} lanes at {speed}"));
    }
    reading
}

/// Parses `16.0 GT/s PCIe`.
fn gigatransfers(speed: &str) -> Option<f64> {
    speed.split_once(" GT/s")?.0.parse().ok()
}
