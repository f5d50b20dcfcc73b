//! The agent's own addresses on the provisioning networks: the interface exists, is up and has a
//! cable.

use std::net::Ipv4Addr;

use muster_core::wire::calls::SiteConfig;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::{Found, Host};

/// Largest size of the site configuration.
const LARGEST: u64 = 64 << 20;

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let addresses = known(host);
    if addresses.is_empty() {
        return vec![Found::unknown(
            "this host knows no provisioning network",
            "give the subnet's agent address with --address, or repeat the check after the agent's first contact with the server",
        )];
    }
    addresses.into_iter().map(look).collect()
}

/// The given addresses, or the addresses of the latest site configuration.
pub(super) fn known(host: &Host) -> Vec<Ipv4Addr> {
    if !host.args.address.is_empty() {
        return host.args.address.clone();
    }
    let kept = || {
        use std::io::Read as _;
        let mut text = String::new();
        let file = std::fs::File::open(host.args.agent_data_dir.join("site.json")).ok()?;
        file.take(LARGEST).read_to_string(&mut text).ok()?;
        serde_json::from_str::<SiteConfig>(&text).ok()
    };
    kept()
        .map(|site| {
            site.subnets
                .iter()
                .map(|subnet| subnet.agent_address)
                .collect()
        })
        .unwrap_or_default()
}

fn look(address: Ipv4Addr) -> Found {
    let interfaces: Vec<_> = match getifaddrs() {
        Ok(interfaces) => interfaces.collect(),
        Err(error) => {
            return Found::unknown(
                format!("the interfaces cannot be listed: {error}"),
                "look with `ip address`",
            );
        }
    };
    let has = |candidate: &&nix::ifaddrs::InterfaceAddress| {
        candidate
            .address
            .as_ref()
            .and_then(|storage| storage.as_sockaddr_in())
            .is_some_and(|found| found.ip() == address)
    };
    let Some(found) = interfaces.iter().find(has) else {
        let mut names: Vec<&str> = interfaces
            .iter()
            .map(|interface| interface.interface_name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        return Found::fail(
            format!(
                "no interface of this machine has {address}; there are {}",
                names.join(", ")
            ),
            format!(
                "ip address add {address}/PREFIX dev INTERFACE (the bridge or port of the provisioning network), or correct the subnet's agent_address"
            ),
        );
    };
    let name = &found.interface_name;
    match (
        found.flags.contains(InterfaceFlags::IFF_UP),
        found.flags.contains(InterfaceFlags::IFF_RUNNING),
    ) {
        (false, _) => Found::fail(
            format!("{name}, which has {address}, is down"),
            format!("ip link set {name} up"),
        ),
        (true, false) => Found::fail(
            format!("{name}, which has {address}, has no carrier"),
            "plug it in; for a bridge: add the port of the provisioning network to it (ip link set PORT master BRIDGE)",
        ),
        (true, true) => Found::ok(format!("{address} is on {name}, which is up")),
    }
}
