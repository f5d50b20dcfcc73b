//! Network interfaces with hardware behind them. InfiniBand ports have longer addresses and are not
//! listed here.

use muster_core::facts::Nic;

use super::text;
use crate::paths;

const FOLDER: &str = "/sys/class/net";
/// Most interfaces listed, virtual functions included.
const NICS_MAX: usize = 1024;

/// Returns all interfaces, by kernel name.
pub fn list() -> Vec<Nic> {
    text::names(FOLDER)
        .iter()
        .filter_map(|name| nic(name))
        .take(NICS_MAX)
        .collect()
}

fn nic(name: &str) -> Option<Nic> {
    let base = format!("{FOLDER}/{name}");
    if !paths::at(&base).join("device").exists() {
        return None;
    }
    Some(Nic {
        name: text::clean(name)?,
        // Members of a bond show the bond's address; the driver keeps the permanent address
        // (Documentation/networking/bonding.rst).
        mac: text::line(format!("{base}/bonding_slave/perm_hwaddr"))
            .or_else(|| text::line(format!("{base}/address")))?
            .parse()
            .ok()?,
        driver: text::link_name(format!("{base}/device/driver")),
        pci_address: text::pci_address(&format!("{base}/device")),
        // Drivers report -1 for unknown; reading fails while the interface is down.
        speed_mbps: text::number(format!("{base}/speed")).filter(|&speed| speed > 0),
        link_up: text::line(format!("{base}/carrier")).as_deref() == Some("1"),
    })
}
