//! Files for systemd-networkd (systemd.network(5), systemd.netdev(5)), contained in Debian and
//! Ubuntu images.
//!
//! Interfaces are matched by permanent MAC, because all members of a bond share one MAC at run
//! time. A bond takes the MAC of the provisioning interface if the bond contains this interface, so
//! the switch and DHCP see one machine. Every written word is a number, a parsed value or a checked
//! name. Text from a person therefore cannot start a line.

use std::fmt::Write as _;

use super::files::{FOLDER, NetworkFile, SINGLE};
use super::language::{BondMode, HashPolicy, LacpRate, Link, NetworkProfile};
use super::resolve::{Resolved, Subject, resolve};

/// Returns the files for one node, sorted by path.
///
/// # Errors
/// A sentence with the profile and the node: a missing interface, label or network, or a fault in
/// the profile.
pub fn render(profile: &NetworkProfile, subject: Subject<'_>) -> Result<Vec<NetworkFile>, String> {
    if let Some((at, why)) = profile.faults().into_iter().next() {
        return Err(format!(
            "The network profile {} is faulty at {at}: {why}",
            subject.profile
        ));
    }
    let resolved = resolve(profile, subject)?;
    let mut files = Vec::new();
    for (name, bond) in &profile.bonds {
        // Without the provisioning interface in the bond, the bond takes the MAC of the first
        // member.
        let boot = bond
            .members
            .iter()
            .find(|member| resolved.macs[member.as_str()] == subject.own.mac);
        let mac = resolved.macs[boot.unwrap_or(&bond.members[0]).as_str()];
        let mut text = render_netdev_head(name, "bond", profile.mtu(name));
        let _ = writeln!(text, "MACAddress={mac}\n\n[Bond]");
        let _ = writeln!(
            text,
            "Mode={}\nMIIMonitorSec={}ms",
            format_bond_mode(bond.mode),
            bond.mii_interval_ms
        );
        if let Some(policy) = bond.hash_policy {
            let _ = writeln!(text, "TransmitHashPolicy={}", hash_policy(policy));
        }
        if let Some(rate) = bond.lacp_rate {
            let _ = writeln!(
                text,
                "LACPTransmitRate={}",
                if rate == LacpRate::Fast {
                    "fast"
                } else {
                    "slow"
                }
            );
        }
        files.push(build_file(&format!("-{name}.netdev"), text));
    }
    for (name, vlan) in &profile.vlans {
        let mut text = render_netdev_head(name, "vlan", profile.mtu(name));
        let _ = writeln!(text, "\n[VLAN]\nId={}", vlan.id);
        files.push(build_file(&format!("-{name}.netdev"), text));
    }
    files.extend(
        profile
            .links()
            .map(|link| render_network(profile, &link, &resolved, subject)),
    );
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Returns the `.network` file of a link: match section and configuration.
fn render_network(
    profile: &NetworkProfile,
    link: &Link<'_>,
    resolved: &Resolved<'_>,
    subject: Subject<'_>,
) -> NetworkFile {
    let management = profile.management() == Some(link.name);
    let mut text = match resolved.macs.get(link.name) {
        Some(mac) => format!("{HEAD}[Match]\nPermanentMACAddress={mac}\n"),
        None => format!("{HEAD}[Match]\nName={}\n", link.name),
    };
    let bond = profile.bond_of(link.name);
    // A bond member takes the bond's MTU. Bonds and VLANs get their MTU in the `.netdev` file.
    let mtu = match bond {
        Some(bond) => Some(profile.mtu(bond)),
        None if resolved.macs.contains_key(link.name) => link.mtu,
        None => None,
    };
    if let Some(mtu) = mtu {
        let _ = writeln!(text, "\n[Link]\nMTUBytes={mtu}");
    }
    text.push_str("\n[Network]\n");
    if let Some(bond) = bond {
        let _ = writeln!(text, "Bond={bond}");
        if profile.bonds[bond].primary.as_deref() == Some(link.name) {
            text.push_str("PrimarySlave=yes\n");
        }
    }
    for (vlan, _) in profile
        .vlans
        .iter()
        .filter(|(_, vlan)| vlan.over == link.name)
    {
        let _ = writeln!(text, "VLAN={vlan}");
    }
    for address in &resolved.addresses[link.name] {
        let _ = writeln!(text, "Address={address}");
    }
    if management {
        if let Some(gateway) = subject.own.gateway {
            let _ = writeln!(text, "Gateway={gateway}");
        }
        for server in &subject.own.dns {
            let _ = writeln!(text, "DNS={server}");
        }
    }
    text.push_str("DHCP=no\nIPv6AcceptRA=no\nLinkLocalAddressing=no\n");
    for route in link.routes {
        let _ = writeln!(
            text,
            "\n[Route]\nDestination={}\nGateway={}",
            route.to, route.via
        );
    }
    match management {
        true => NetworkFile {
            path: SINGLE.into(),
            content: text,
        },
        false => build_file(&format!("-{}.network", link.name), text),
    }
}

const HEAD: &str = "# Written by Muster from the pool's network profile.\n";

fn render_netdev_head(name: &str, kind: &str, mtu: u32) -> String {
    format!("{HEAD}[NetDev]\nName={name}\nKind={kind}\nMTUBytes={mtu}\n")
}

fn build_file(end: &str, content: String) -> NetworkFile {
    NetworkFile {
        path: format!("{FOLDER}/10-muster{end}"),
        content,
    }
}

fn format_bond_mode(mode: BondMode) -> &'static str {
    match mode {
        BondMode::ActiveBackup => "active-backup",
        BondMode::Lacp => "802.3ad",
        BondMode::BalanceXor => "balance-xor",
    }
}

fn hash_policy(policy: HashPolicy) -> &'static str {
    match policy {
        HashPolicy::Layer2 => "layer2",
        HashPolicy::Layer23 => "layer2+3",
        HashPolicy::Layer34 => "layer3+4",
    }
}
