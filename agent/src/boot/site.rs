//! The site configuration, indexed for fast answers, and its copy on disk. With the copy, machines
//! receive addresses and boot from the local disk while the server is unreachable.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::Path;

use muster_core::values::Mac;
use muster_core::wire::calls::{DhcpMode, Reservation, SiteConfig, Subnet};

use crate::private;

/// Maximum size of a snapshot. 100,000 reservations need about 15 MB.
const MAX_SNAPSHOT: u64 = 64 << 20;
const SNAPSHOT: &str = "site.json";

/// All subnets of a site.
#[derive(Debug, Default)]
pub struct Site {
    pub subnets: Vec<Segment>,
}

/// A subnet with its reservations by MAC.
#[derive(Debug)]
pub struct Segment {
    pub subnet: Subnet,
    by_mac: HashMap<Mac, usize>,
    taken: HashSet<Ipv4Addr>,
}

impl From<&SiteConfig> for Site {
    fn from(config: &SiteConfig) -> Self {
        Self {
            subnets: config.subnets.iter().cloned().map(Segment::from).collect(),
        }
    }
}

impl From<Subnet> for Segment {
    fn from(subnet: Subnet) -> Self {
        let by_mac = subnet
            .reservations
            .iter()
            .enumerate()
            .map(|(at, reservation)| (reservation.mac, at))
            .collect();
        let mut taken: HashSet<Ipv4Addr> = subnet
            .reservations
            .iter()
            .map(|reservation| reservation.address)
            .collect();
        taken.extend([
            subnet.agent_address,
            subnet.network.network(),
            subnet.network.broadcast(),
        ]);
        taken.extend(subnet.gateway);
        taken.extend(&subnet.dns);
        Self {
            subnet,
            by_mac,
            taken,
        }
    }
}

impl Segment {
    /// Returns the reservation of a MAC.
    pub fn reservation(&self, mac: Mac) -> Option<&Reservation> {
        self.by_mac
            .get(&mac)
            .map(|at| &self.subnet.reservations[*at])
    }

    /// Returns whether an address must not be leased dynamically.
    pub fn is_taken(&self, address: Ipv4Addr) -> bool {
        self.taken.contains(&address)
    }
}

impl Site {
    /// Returns the subnet of an address.
    pub fn segment_of(&self, address: Ipv4Addr) -> Option<&Segment> {
        self.subnets
            .iter()
            .find(|segment| segment.subnet.network.contains(&address))
    }

    /// Returns whether a source is in a subnet with this address of the agent.
    pub fn has_client(&self, agent: Ipv4Addr, source: Ipv4Addr) -> bool {
        let served =
            |subnet: &Subnet| subnet.agent_address == agent && subnet.network.contains(&source);
        self.subnets.iter().any(|segment| served(&segment.subnet))
    }

    /// Returns the subnet of a DHCP packet. A relayed packet is matched by its relay, any other
    /// packet by the receiving interface. On an interface with several subnets, a subnet with a
    /// reservation for the machine is preferred, then a subnet with a dynamic range.
    pub fn segment_for(
        &self,
        mac: Mac,
        giaddr: Ipv4Addr,
        heard_on: &[Ipv4Addr],
    ) -> Option<&Segment> {
        let here = self.subnets.iter().filter(|Segment { subnet, .. }| {
            let on_this_wire = match giaddr.is_unspecified() {
                true => subnet.network.contains(&subnet.agent_address),
                false => subnet.relays.contains(&giaddr),
            };
            on_this_wire && subnet.mode != DhcpMode::Off && heard_on.contains(&subnet.agent_address)
        });
        here.max_by_key(|segment| {
            (
                segment.reservation(mac).is_some(),
                segment.subnet.dynamic_range.is_some(),
            )
        })
    }

    /// Returns the MAC of the reservation for an address.
    pub fn mac_of(&self, address: Ipv4Addr) -> Option<Mac> {
        let subnet = &self.segment_of(address)?.subnet;
        subnet
            .reservations
            .iter()
            .find(|reservation| reservation.address == address)
            .map(|reservation| reservation.mac)
    }
}

/// Reads the saved configuration. Returns `None` for a missing or unreadable file.
pub fn load(data_dir: &Path) -> Option<SiteConfig> {
    let path = data_dir.join(SNAPSHOT);
    let read = || -> io::Result<SiteConfig> {
        if fs::metadata(&path)?.len() > MAX_SNAPSHOT {
            return Err(io::Error::other(
                "larger than a site's configuration can be",
            ));
        }
        Ok(serde_json::from_slice(&fs::read(&path)?)?)
    };
    match read() {
        Ok(config) => Some(config),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "saved site configuration not readable; waiting for the configuration of the server");
            None
        }
    }
}

/// Replaces the saved configuration atomically.
pub fn save(data_dir: &Path, config: &SiteConfig) -> io::Result<()> {
    private::create_dir(data_dir)?;
    let draft = data_dir.join(format!(".{SNAPSHOT}.{}", std::process::id()));
    let mut file = private::create_file(&draft)?;
    file.write_all(&serde_json::to_vec_pretty(config)?)?;
    file.sync_all()?;
    fs::rename(&draft, data_dir.join(SNAPSHOT))?;
    File::open(data_dir)?.sync_all()
}
