//! Another DHCP server on a provisioning network. The check sends a DHCPDISCOVER like any machine,
//! collects offers for a moment, and accepts no offer.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use muster_agent::boot::BootPorts;
use muster_agent::boot::dhcp::wire::{Kind, MAX_PACKET, Message, Op, Options, code};
use muster_agent::boot::links::{ListenError, interface_of, udp_on};
use muster_core::values::Mac;

use super::sockets::{self, Protocol};
use super::{Found, Host, addresses};

/// Time limit for offers.
const LISTEN: Duration = Duration::from_secs(4);

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let ports = BootPorts::default();
    let own = sockets::open(Protocol::Udp).unwrap_or_default();
    let own = own
        .iter()
        .find(|open| open.port == ports.dhcp_server)
        .and_then(sockets::Open::owner);
    if own.is_some_and(|(name, _)| name == "muster") {
        return vec![Found::unknown(
            "the agent on this host runs, and would take what is asked here for a new machine",
            "the agent reports other DHCP servers as events: muster event list",
        )];
    }
    let mut found = Vec::new();
    for address in addresses::known(host) {
        found.push(match interface_of(address) {
            Ok(interface) => ask(&interface, ports).await,
            Err(_) => Found::unknown(
                format!("no interface has {address}"),
                "see the check `addresses`",
            ),
        });
    }
    if found.is_empty() {
        found.push(Found::unknown(
            "this host knows no provisioning network",
            "give the subnet's agent address with --address",
        ));
    }
    found
}

async fn ask(interface: &str, ports: BootPorts) -> Found {
    let socket = match udp_on(interface, "DHCP", ports.dhcp_client) {
        Ok(socket) => socket,
        Err(error @ ListenError::InUse { .. }) => {
            return Found::unknown(
                error.to_string(),
                "stop the DHCP client of this interface for a moment: it hears the answers",
            );
        }
        Err(error) => return Found::unknown(error.to_string(), "run this as root"),
    };
    let Some(mac) = mac(interface) else {
        return Found::unknown(
            format!("{interface} has no Ethernet address"),
            "look with `ip link`",
        );
    };
    let discover = discover(mac);
    if let Err(error) = socket
        .send_to(&discover.encode(), (Ipv4Addr::BROADCAST, ports.dhcp_server))
        .await
    {
        return Found::unknown(
            format!("{interface}: a request for an address cannot be sent: {error}"),
            "see the check `addresses`",
        );
    }
    let mut servers = BTreeSet::new();
    let listen = async {
        let mut buffer = [0; MAX_PACKET];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let offered = Message::parse(&buffer[..length]).ok();
            let offered = offered
                .filter(|offer| offer.xid == discover.xid && offer.kind() == Some(Kind::Offer));
            servers.extend(offered.map(|offer| {
                offer
                    .options
                    .address(code::SERVER_ID)
                    .map_or(from.ip(), Into::into)
            }));
        }
    };
    tokio::time::timeout(LISTEN, listen).await.ok();
    match servers.is_empty() {
        true => Found::ok(format!("no other DHCP server answers on {interface}")),
        false => {
            let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
            Found::fail(
                format!(
                    "another DHCP server answers on {interface}: {}",
                    servers.join(", ")
                ),
                "stop the other server on the provisioning network, or set the subnet's mode to proxy",
            )
        }
    }
}

fn discover(mac: Mac) -> Message {
    let mut options = Options::default();
    options.set(code::MESSAGE_TYPE, [Kind::Discover as u8]);
    Message {
        op: Op::FromClient,
        hops: 0,
        xid: rand::random(),
        secs: 0,
        broadcast: true,
        ciaddr: Ipv4Addr::UNSPECIFIED,
        yiaddr: Ipv4Addr::UNSPECIFIED,
        siaddr: Ipv4Addr::UNSPECIFIED,
        giaddr: Ipv4Addr::UNSPECIFIED,
        mac,
        file: Vec::new(),
        options,
    }
}

fn mac(interface: &str) -> Option<Mac> {
    let mut interfaces = nix::ifaddrs::getifaddrs().ok()?;
    interfaces.find_map(|found| {
        let link = found
            .address
            .filter(|_| found.interface_name == interface)?;
        link.as_link_addr()?.addr().map(Mac)
    })
}
