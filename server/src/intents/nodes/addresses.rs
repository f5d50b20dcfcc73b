//! Addresses of boot MACs: the requested address, or the lowest free one of the subnet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use muster_api::nodes::{NodeMac, NodeSpec};
use muster_api::subnets::SubnetSpec;
use muster_core::ids::ObjectId;
use muster_core::values::Mac;
use sqlx::PgConnection;

use crate::db;
use crate::db::macs::MacRow;
use crate::document::{self, fault};
use crate::error::{Error, Fault};
use crate::intents::references::Referrer;

/// The largest number of boot interfaces of a node; servers have fewer.
const MOST: usize = 32;
/// The reference of any MAC to its subnet.
const SUBNET: &str = "/spec/macs/*/subnet";

/// A locked subnet, with the taken addresses.
struct Held {
    id: ObjectId,
    spec: SubnetSpec,
    taken: BTreeMap<Mac, IpAddr>,
    /// Addresses reserved by this request.
    given: BTreeSet<Ipv4Addr>,
}

/// Reserves an address for each boot MAC of a node. A subnet stays locked until the transaction
/// ends, so that two nodes never get the same address. Problems are added to `faults`. A MAC of no
/// machine is refused, unless the node had the MAC before (`former`).
///
/// # Errors
/// 403 for a new subnet beyond the rights of the writer.
pub(crate) async fn reserve(
    conn: &mut PgConnection,
    referrer: &Referrer<'_>,
    faults: &mut Vec<Fault>,
    spec: &NodeSpec,
    former: &BTreeSet<Mac>,
) -> Result<Vec<MacRow>, Error> {
    let mut rows = Vec::new();
    if !(1..=MOST).contains(&spec.macs.len()) {
        faults.push(fault(
            "/spec/macs",
            "out_of_range",
            format!("1 to {MOST} interfaces"),
        ));
        return Ok(rows);
    }
    let mut subnets: BTreeMap<&str, Option<Held>> = BTreeMap::new();
    let mut names: Vec<&str> = spec
        .macs
        .iter()
        .filter_map(|mac| mac.subnet.as_deref())
        .collect();
    // Lock subnets in the order of the names, so that two registrations cannot deadlock.
    names.sort_unstable();
    names.dedup();
    for name in names {
        subnets.insert(name, lock_subnet(conn, referrer, name).await?);
    }
    let mut seen = BTreeSet::new();
    for (at, mac) in spec.macs.iter().enumerate() {
        if !seen.insert(mac.mac) {
            faults.push(fault(
                format!("/spec/macs/{at}/mac"),
                "twice",
                "The interface is listed twice.",
            ));
            continue;
        }
        if !mac.mac.is_of_machine() && !former.contains(&mac.mac) {
            faults.push(fault(
                format!("/spec/macs/{at}/mac"),
                "no_machine",
                format!(
                    "{} is no machine's address: write the MAC of the interface that boots.",
                    mac.mac
                ),
            ));
            continue;
        }
        match lease_address(&mut subnets, at, mac, &spec.site) {
            Ok(lease) => rows.push(MacRow {
                mac: mac.mac,
                lease,
            }),
            Err(wrong) => faults.push(wrong),
        }
    }
    Ok(rows)
}

/// Locks a subnet. `None` for a missing subnet, and for a subnet hidden from the writer.
async fn lock_subnet(
    conn: &mut PgConnection,
    referrer: &Referrer<'_>,
    name: &str,
) -> Result<Option<Held>, Error> {
    let Some(row) = db::objects::find_for_update(conn, "subnet", name).await? else {
        return Ok(None);
    };
    if !referrer.may_name(conn, SUBNET, &row).await? {
        return Ok(None);
    }
    let spec = document::stored(&row)?;
    let taken = db::macs::list_taken(conn, row.id)
        .await?
        .into_iter()
        .collect();
    Ok(Some(Held {
        id: row.id,
        spec,
        taken,
        given: BTreeSet::new(),
    }))
}

fn lease_address(
    subnets: &mut BTreeMap<&str, Option<Held>>,
    at: usize,
    mac: &NodeMac,
    site: &str,
) -> Result<Option<(ObjectId, Ipv4Addr)>, Fault> {
    let pointer = |member: &str| format!("/spec/macs/{at}/{member}");
    let Some(name) = mac.subnet.as_deref() else {
        return match mac.address {
            None => Ok(None),
            Some(_) => Err(fault(
                pointer("subnet"),
                "required",
                "An address belongs to a subnet.",
            )),
        };
    };
    let Some(Some(held)) = subnets.get_mut(name) else {
        return Err(fault(
            pointer("subnet"),
            "not_found",
            format!("There is no subnet called {name:?}."),
        ));
    };
    if held.spec.site != site {
        return Err(fault(
            pointer("subnet"),
            "other_site",
            format!("{name} belongs to another site."),
        ));
    }
    let stored = held.taken.get(&mac.mac).copied();
    let address = match mac.address {
        // An address stored before a rule goes on.
        Some(address) if stored == Some(IpAddr::V4(address)) && !held.given.contains(&address) => {
            address
        }
        Some(address) => {
            check_wanted(held, address).map_err(|why| fault(pointer("address"), "not_free", why))?
        }
        None => pick_address(held, mac.mac).ok_or_else(|| {
            fault(
                pointer("subnet"),
                "exhausted",
                format!("{name} has no free address."),
            )
        })?,
    };
    held.taken.insert(mac.mac, IpAddr::V4(address));
    held.given.insert(address);
    Ok(Some((held.id, address)))
}

/// Checks the requested address against the subnet and against the same request. A conflict with
/// another node fails at the write, by a constraint of the database; the error then names the
/// holder.
fn check_wanted(held: &Held, address: Ipv4Addr) -> Result<Ipv4Addr, String> {
    if let Some(conflict) = find_conflict(&held.spec, address) {
        return Err(format!("{}.", conflict.describe(&held.spec, address)));
    }
    match held.given.contains(&address) {
        true => Err(format!("{address} is listed twice.")),
        false => Ok(address),
    }
}

/// Picks the MAC's earlier address, or the lowest free one.
fn pick_address(held: &Held, mac: Mac) -> Option<Ipv4Addr> {
    if let Some(IpAddr::V4(had)) = held.taken.get(&mac) {
        return Some(*had);
    }
    let taken: BTreeSet<IpAddr> = held.taken.values().copied().collect();
    let free = |address: &Ipv4Addr| {
        find_conflict(&held.spec, *address).is_none() && !taken.contains(&IpAddr::V4(*address))
    };
    held.spec.network.hosts().find(free)
}

/// The reason why no node can have an address of a subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    NotHost,
    Agent,
    Gateway,
    /// The address is lent to undeclared machines.
    Lent,
}

impl Conflict {
    /// The conflict as a sentence without the full stop.
    pub(crate) fn describe(self, subnet: &SubnetSpec, address: Ipv4Addr) -> String {
        match self {
            Self::NotHost => format!("{address} is not a host address of {}", subnet.network),
            Self::Agent => format!("{address} belongs to the agent"),
            Self::Gateway => format!("{address} belongs to the gateway"),
            Self::Lent => format!("{address} belongs to the dynamic range"),
        }
    }
}

/// Returns the reason why no node can have the address. The write of a node and the write of its
/// subnet check the same rule.
pub(crate) fn find_conflict(subnet: &SubnetSpec, address: Ipv4Addr) -> Option<Conflict> {
    if !is_host(subnet, address) {
        return Some(Conflict::NotHost);
    }
    if address == subnet.agent_address {
        return Some(Conflict::Agent);
    }
    if subnet.gateway == Some(address) {
        return Some(Conflict::Gateway);
    }
    let lent = subnet
        .dynamic_range
        .is_some_and(|range| (range.first..=range.last).contains(&address));
    lent.then_some(Conflict::Lent)
}

/// Whether a machine may have the address: inside the network, and neither the network address nor
/// the broadcast address.
pub(crate) fn is_host(subnet: &SubnetSpec, address: Ipv4Addr) -> bool {
    let network = subnet.network;
    network.contains(&address) && address != network.network() && address != network.broadcast()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn held(taken: &[(&str, &str)]) -> Held {
        let spec = json!({
            "site": "s", "network": "10.0.0.0/29", "agent_address": "10.0.0.1", "mode": "authoritative",
            "dynamic_range": {"first": "10.0.0.5", "last": "10.0.0.6"}
        });
        let taken = taken
            .iter()
            .map(|(mac, ip)| (mac.parse().unwrap(), ip.parse().unwrap()))
            .collect();
        Held {
            id: ObjectId::new(),
            spec: serde_json::from_value(spec).unwrap(),
            taken,
            given: BTreeSet::new(),
        }
    }

    #[test]
    fn the_lowest_free_address_is_picked_and_kept() {
        let (a, b): (Mac, Mac) = (
            "52:54:00:00:00:0a".parse().unwrap(),
            "52:54:00:00:00:0b".parse().unwrap(),
        );
        assert_eq!(
            pick_address(&held(&[]), a),
            Some(Ipv4Addr::new(10, 0, 0, 2))
        );
        assert_eq!(
            pick_address(&held(&[("52:54:00:00:00:0b", "10.0.0.2")]), a),
            Some(Ipv4Addr::new(10, 0, 0, 3))
        );
        assert_eq!(
            pick_address(&held(&[("52:54:00:00:00:0b", "10.0.0.4")]), b),
            Some(Ipv4Addr::new(10, 0, 0, 4))
        );
        let full = held(&[
            ("52:54:00:00:00:01", "10.0.0.2"),
            ("52:54:00:00:00:02", "10.0.0.3"),
            ("52:54:00:00:00:03", "10.0.0.4"),
        ]);
        assert_eq!(pick_address(&full, a), None);
    }

    #[test]
    fn a_wanted_address_must_be_free_and_a_host() {
        let held = Held {
            given: [Ipv4Addr::new(10, 0, 0, 2)].into(),
            ..held(&[])
        };
        for bad in [
            "10.0.0.0", "10.0.0.7", "10.0.0.1", "10.0.0.5", "10.0.0.2", "10.0.1.2",
        ] {
            assert!(check_wanted(&held, bad.parse().unwrap()).is_err(), "{bad}");
        }
        assert!(check_wanted(&held, Ipv4Addr::new(10, 0, 0, 3)).is_ok());
    }
}
