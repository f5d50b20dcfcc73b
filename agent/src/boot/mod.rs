//! Boot services on the provisioning network: DHCP, TFTP, HTTP. The default answer for every
//! machine is a boot from the local disk, and only an armed boot changes the answer. The services
//! keep answering without the server and the database.

pub mod arm; // Armed boots: one node, one window
pub mod dhcp; // Addresses and the first loader
pub mod http; // Scripts, blobs, trust, time, reports
pub mod links; // Interfaces and sockets tied to them
pub mod loaders; // The iPXE binaries
pub mod lookout; // Sightings of machines
pub mod site; // Site configuration and its copy on disk
pub mod tftp; // Sends the first loader

mod held; // Machines running the live image
mod keep; // Starts and stops listeners with the configuration
mod pending; // Boots leased and not armed yet
mod places; // Bounds of a listener, per source
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use muster_core::clock::Clock;
use muster_core::values::Mac;
use muster_core::wire::calls::{DhcpMode, Sighting, SiteConfig};
use muster_core::wire::node::SiteTrust;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::arm::{ArmedBoots, LiveImage};
use self::dhcp::leases::Leases;
use self::dhcp::yielding::Yielding;
pub use self::keep::{Health, ListenerState};
use self::loaders::IpxeBinaries;
use self::lookout::Lookout;
use self::places::Share;
use self::site::Site;
use crate::blobs::BlobCache;
use crate::contact::{Contact, Tenure};
use crate::private;

/// Settings and resources of the boot services.
#[derive(Clone, Debug)]
pub struct BootOptions {
    /// Directory of the saved site configuration.
    pub data_dir: PathBuf,
    /// Cache of kernels, initrds and bundles.
    pub blobs: BlobCache,
    /// The loaders for TFTP and UEFI HTTP boot.
    pub ipxe: IpxeBinaries,
    /// Keys trusted by live images. `None` until the first answer of the server. `agent_url` is set
    /// per listener.
    pub trust: watch::Receiver<Option<SiteTrust>>,
    /// Clock for sightings and `/boot/v1/time`.
    pub clock: Clock,
    /// Contact with the server. Decides whether machines are answered at once, later, or only with
    /// a boot from the local disk.
    pub contact: Contact,
    pub ports: BootPorts,
}

/// Ports of the boot services. Only tests use other values than the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootPorts {
    /// Port of the DHCP server, 67.
    pub dhcp_server: u16,
    /// Port of the DHCP relays.
    pub dhcp_relay: u16,
    /// Port of DHCP clients, 68, used to detect other DHCP servers.
    pub dhcp_client: u16,
    /// Port of the PXE boot server, 4011.
    pub pxe: u16,
    /// Port of the TFTP server, 69.
    pub tftp: u16,
    /// Port of the HTTP boot listener, 8090.
    pub http: u16,
}

impl Default for BootPorts {
    fn default() -> Self {
        Self {
            dhcp_server: 67,
            dhcp_relay: 67,
            dhcp_client: 68,
            pxe: 4011,
            tftp: 69,
            http: 8090,
        }
    }
}

/// The running services. Dropping the value stops the services.
#[derive(Debug)]
pub struct BootServices {
    tasks: JoinSet<()>,
    health: watch::Receiver<Health>,
}

impl BootServices {
    /// Starts the services with the saved configuration, if present, and continues with the values
    /// of `config`. `cancel` stops the services.
    pub async fn start(
        options: BootOptions,
        config: watch::Receiver<Option<SiteConfig>>,
        armed: ArmedBoots,
        sightings: mpsc::Sender<Sighting>,
        cancel: CancellationToken,
    ) -> io::Result<Self> {
        let data_dir = options.data_dir.clone();
        let load = move || private::create_dir(&data_dir).map(|()| site::load(&data_dir));
        let saved = tokio::task::spawn_blocking(load)
            .await
            .map_err(io::Error::other)
            .flatten()?;
        let first = config.borrow().clone().or(saved);
        let (site, sites) =
            watch::channel(Arc::new(first.as_ref().map(Site::from).unwrap_or_default()));
        let shared = Arc::new(Shared::new(
            options.clone(),
            armed,
            sightings,
            sites.clone(),
        ));
        let (health, healths) = watch::channel(Health::default());
        let mut tasks = JoinSet::new();
        let following = follow(options.data_dir, config, site);
        let stop = cancel.clone();
        tasks.spawn(async move {
            stop.run_until_cancelled(following).await;
        });
        tasks.spawn(keep::run(shared, sites, health, cancel));
        Ok(Self {
            tasks,
            health: healths,
        })
    }

    /// Returns the state of each listener, by name.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Waits until every task has ended. The tasks end after the cancellation.
    pub async fn stopped(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Publishes each configuration after the save on disk. If saving fails, the configuration is still
/// used, because answering now is more important.
async fn follow(
    data_dir: PathBuf,
    mut config: watch::Receiver<Option<SiteConfig>>,
    site: watch::Sender<Arc<Site>>,
) {
    config.mark_changed();
    while config.changed().await.is_ok() {
        let Some(new) = config.borrow_and_update().clone() else {
            continue;
        };
        let published = Arc::new(Site::from(&new));
        let dir = data_dir.clone();
        let saved = tokio::task::spawn_blocking(move || site::save(&dir, &new))
            .await
            .map_err(io::Error::other)
            .flatten();
        if let Err(error) = saved {
            let dir = data_dir.display();
            tracing::error!(%dir, %error, "site configuration not saved; after a restart without the server, DHCP would use an older configuration; check the disk");
        }
        site.send_replace(published);
    }
    // The sender was dropped, so the last configuration stays in use.
    std::future::pending().await
}

/// State shared by all listeners.
#[derive(Debug)]
pub struct Shared {
    site: watch::Receiver<Arc<Site>>,
    armed: ArmedBoots,
    lookout: Lookout,
    blobs: BlobCache,
    ipxe: IpxeBinaries,
    trust: watch::Receiver<Option<SiteTrust>>,
    leases: Mutex<Leases>,
    yielding: Mutex<Yielding>,
    contact: Contact,
    clock: Clock,
    ports: BootPorts,
}

impl Shared {
    /// Builds the shared state. The call starts no listener.
    pub fn new(
        options: BootOptions,
        armed: ArmedBoots,
        sightings: mpsc::Sender<Sighting>,
        site: watch::Receiver<Arc<Site>>,
    ) -> Self {
        let BootOptions {
            data_dir: _,
            blobs,
            ipxe,
            trust,
            clock,
            contact,
            ports,
        } = options;
        let lookout = Lookout::new(armed.clone(), sightings, clock.clone());
        let (leases, yielding) = Default::default();
        Self {
            site,
            armed,
            lookout,
            blobs,
            ipxe,
            trust,
            leases,
            yielding,
            contact,
            clock,
            ports,
        }
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        // A lease table after a panic loses at most an address until the lease expires.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn yielding(&self) -> MutexGuard<'_, Yielding> {
        // After a panic a machine is at worst answered too early or too late.
        self.yielding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tenure(&self) -> Tenure {
        self.contact.tenure(Instant::now())
    }

    /// Returns the image armed for a MAC. Returns `None` once another agent may act for the site,
    /// because the other agent then owns the boot, with its own permit and window.
    fn armed_for(&self, mac: Mac) -> Option<LiveImage> {
        self.armed
            .find(mac)
            .filter(|_| self.tenure() != Tenure::Over)
    }

    /// Returns whether the machine with a MAC runs the live image, by the last boot of this agent.
    fn runs_live(&self, mac: Mac) -> bool {
        self.armed.runs_live(mac) && self.tenure() != Tenure::Over
    }

    /// Returns the machine at an address, by lease, by armed boot or by reservation.
    fn mac_at(&self, address: Ipv4Addr) -> Option<Mac> {
        let leased = self.leases().holder(address, Instant::now());
        let armed = || self.armed.find_by_address(address).map(|(mac, _)| mac);
        leased
            .or_else(armed)
            .or_else(|| self.site.borrow().mac_of(address))
    }

    /// Returns the share of places of a listener for a source.
    fn share_of(&self, source: Ipv4Addr) -> Share {
        if self.site.borrow().segment_of(source).is_none() {
            Share::Outside
        } else if self.armed.is_at(source) {
            Share::Armed
        } else {
            Share::Subnet
        }
    }

    /// Returns whether a request from `from` may come from the armed machine with the address
    /// `address`. On subnets with our DHCP server the addresses must be equal. Other clients of the
    /// port, for example a container on an installed node, receive no nonce and cannot use up a
    /// nonce. On other subnets the DHCP server of the site may have assigned another address.
    fn may_act_for(&self, address: Ipv4Addr, from: Ipv4Addr) -> bool {
        let site = self.site.borrow();
        let ours = site
            .segment_of(address)
            .is_some_and(|segment| segment.subnet.mode == DhcpMode::Authoritative);
        !ours || address == from
    }
}
