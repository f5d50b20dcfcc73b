//! What a booting machine meets on the provisioning network: DHCP, TFTP, HTTP. The default answer for anyone, at any time, is its own disk; only an
//! armed boot changes that. Needs neither the server nor a database to keep answering.

pub mod arm; // Armed boots: one node, one window
pub mod dhcp; // Addresses, and the way to the first loader
pub mod http; // Scripts, blobs, trust, time, reports
pub mod links; // Interfaces and sockets tied to them
pub mod loaders; // The iPXE binaries
pub mod lookout; // What machines are seen doing
pub mod site; // The site's configuration and its copy on disk
pub mod tftp; // The first loader

mod keep; // Listeners that come and go with the configuration
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
use self::site::Site;
use crate::blobs::BlobCache;
use crate::contact::{Contact, Tenure};

/// What the boot services work with.
#[derive(Clone, Debug)]
pub struct BootOptions {
    /// Where the last site configuration is kept.
    pub data_dir: PathBuf,
    pub blobs: BlobCache,
    pub ipxe: IpxeBinaries,
    /// Whom live images trust; unknown until the server was heard. `agent_url` is filled in per listener.
    pub trust: watch::Receiver<Option<SiteTrust>>,
    pub clock: Clock,
    /// What decides whether machines are answered at once, late, or only from their own disks.
    pub contact: Contact,
    pub ports: BootPorts,
}

/// Ports; other than the default only in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootPorts {
    pub dhcp_server: u16,
    /// Where relays listen.
    pub dhcp_relay: u16,
    pub dhcp_client: u16,
    pub pxe: u16,
    pub tftp: u16,
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

/// The running services. Dropping it ends them.
#[derive(Debug)]
pub struct BootServices {
    tasks: JoinSet<()>,
    health: watch::Receiver<Health>,
}

impl BootServices {
    /// Starts answering: at once from the saved configuration where there is one, then from what `config` says. Ends with `cancel`.
    pub async fn start(
        options: BootOptions,
        config: watch::Receiver<Option<SiteConfig>>,
        armed: ArmedBoots,
        sightings: mpsc::Sender<Sighting>,
        cancel: CancellationToken,
    ) -> io::Result<Self> {
        let data_dir = options.data_dir.clone();
        tokio::fs::create_dir_all(&data_dir).await?;
        let saved = tokio::task::spawn_blocking(move || site::load(&data_dir))
            .await
            .map_err(io::Error::other)?;
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

    /// How each listener is, by name.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Waits until every task has ended, which they do once cancelled.
    pub async fn stopped(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Publishes each configuration, once it is safe on disk. One that cannot be saved is used all the same: answering now matters more.
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
            tracing::error!(%dir, %error, "the site configuration cannot be saved; after a restart without a server DHCP would answer from an older one");
        }
        site.send_replace(published);
    }
    // The sender is gone: the last configuration stays.
    std::future::pending().await
}

/// What every listener works with.
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
    /// What the listeners share; nothing listens yet.
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
        // A lease table that a panic left half-changed costs at worst one address until it expires.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn yielding(&self) -> MutexGuard<'_, Yielding> {
        // At worst a machine is answered once too early or too late.
        self.yielding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tenure(&self) -> Tenure {
        self.contact.tenure(Instant::now())
    }

    /// What is armed for a MAC. Nothing once another agent may act for the site: the boot is its by now, with a permit and a window of its own.
    fn armed_for(&self, mac: Mac) -> Option<LiveImage> {
        self.armed
            .find(mac)
            .filter(|_| self.tenure() != Tenure::Over)
    }

    /// The machine at an address: by its lease, by what is armed, by reservation.
    fn mac_at(&self, address: Ipv4Addr) -> Option<Mac> {
        let leased = self.leases().holder(address, Instant::now());
        let armed = || self.armed.find_by_address(address).map(|(mac, _)| mac);
        leased
            .or_else(armed)
            .or_else(|| self.site.borrow().mac_of(address))
    }

    /// Whether a request from `from` may stand for the armed machine that is to be at `address`. Where we give out the addresses it must come from
    /// there: whoever else can reach this port, a container on an installed node for one, gets no nonce and burns none. A site's own DHCP server
    /// may have given another address.
    fn may_act_for(&self, address: Ipv4Addr, from: Ipv4Addr) -> bool {
        let site = self.site.borrow();
        let ours = site
            .segment_of(address)
            .is_some_and(|segment| segment.subnet.mode == DhcpMode::Authoritative);
        !ours || address == from
    }
}
