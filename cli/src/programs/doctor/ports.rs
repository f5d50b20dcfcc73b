//! Ports taken by another program: the most frequent cause of a failing first start.

use std::net::{IpAddr, Ipv4Addr};

use muster_agent::boot::BootPorts;

use super::sockets::{self, Protocol};
use super::{Found, Host, Part};

pub(super) fn check(host: &Host) -> Vec<Found> {
    let mut wanted: Vec<(&str, Protocol, IpAddr, u16)> = Vec::new();
    if host.is(Part::Server) {
        let (public, agents) = (host.args.listen, host.args.agent_listen);
        wanted.push(("API and console", Protocol::Tcp, public.ip(), public.port()));
        wanted.push((
            "the agents' listener",
            Protocol::Tcp,
            agents.ip(),
            agents.port(),
        ));
    }
    if host.is(Part::Agent) {
        let ports = BootPorts::default();
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        wanted.push(("DHCP", Protocol::Udp, any, ports.dhcp_server));
        wanted.push(("TFTP", Protocol::Udp, any, ports.tftp));
        wanted.push(("PXE", Protocol::Udp, any, ports.pxe));
        wanted.push(("HTTP boot", Protocol::Tcp, any, ports.http));
    }
    let (Some(tcp), Some(udp)) = (sockets::open(Protocol::Tcp), sockets::open(Protocol::Udp))
    else {
        return vec![Found::unknown(
            "/proc/net cannot be read",
            "look with `ss -lntup`",
        )];
    };
    let mut found = Vec::new();
    let mut free = Vec::new();
    for (what, protocol, address, port) in wanted {
        let (open, name) = match protocol {
            Protocol::Tcp => (&tcp, "TCP"),
            Protocol::Udp => (&udp, "UDP"),
        };
        let Some(taken) = open
            .iter()
            .find(|open| open.is_in_the_way_of(address, port))
        else {
            free.push(format!("{name} {port}"));
            continue;
        };
        found.push(match taken.owner() {
            Some((owner, pid)) if owner == "muster" => Found::ok(format!(
                "{name} {port} ({what}) is Muster's own, process {pid}"
            )),
            Some((owner, pid)) => Found::fail(
                format!("{name} port {port} ({what}) is taken by {owner}, process {pid}"),
                remedy(port, &owner),
            ),
            None => Found::fail(
                format!("{name} port {port} ({what}) is taken by a program of another user"),
                format!("run this as root to see which one, or `ss -lnp sport = :{port}`"),
            ),
        });
    }
    if !free.is_empty() {
        found.push(Found::ok(format!("free: {}", free.join(", "))));
    }
    found
}

fn remedy(port: u16, owner: &str) -> String {
    match port {
        67 | 69 | 4011 => format!(
            "stop {owner} on the provisioning network, or keep it and set the subnet's mode to proxy (DHCP only)"
        ),
        8090 => format!("stop {owner}: machines load their boot files from this port"),
        _ => format!("stop {owner}, or choose another port with --listen or --agent-listen"),
    }
}
