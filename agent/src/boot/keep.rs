//! Runs the listeners needed by the configuration and the interfaces of the machine. Reports for
//! each failed listener the reason.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use muster_core::wire::calls::DhcpMode;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::dhcp::{self, DhcpLink};
use super::http::listener;
use super::links::{ListenError, interface_of};
use super::site::Site;
use super::{Shared, tftp};

/// Interval of checks for new interfaces, because the kernel sends no notification here.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Maximum pause before restarting a failed listener. The pause starts at one second and doubles.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// State of every listener, by name: `DHCP on br0`, `TFTP on 10.77.0.1`, `HTTP on 10.77.0.1`.
pub type Health = BTreeMap<String, ListenerState>;

/// State of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerState {
    Starting,
    Up,
    /// The listener failed and will be restarted. The text gives the reason and the next step for
    /// the operator.
    Down(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Service {
    Dhcp(DhcpLink),
    Tftp(Ipv4Addr),
    Http(Ipv4Addr),
}

/// Runs the listeners until cancelled.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut site: watch::Receiver<Arc<Site>>,
    health: watch::Sender<Health>,
    cancel: CancellationToken,
) {
    let mut running: BTreeMap<String, (Service, JoinSet<()>)> = BTreeMap::new();
    loop {
        let wanted = services(&site.borrow_and_update());
        running.retain(|name, (service, _)| wanted.get(name) == Some(service));
        health.send_if_modified(|health| {
            let before = health.len();
            health.retain(|name, _| running.contains_key(name));
            health.len() != before
        });
        for (name, service) in wanted {
            running.entry(name.clone()).or_insert_with(|| {
                health
                    .send_modify(|health| _ = health.insert(name.clone(), ListenerState::Starting));
                let mut task = JoinSet::new();
                task.spawn(keep(
                    Arc::clone(&shared),
                    name,
                    service.clone(),
                    health.clone(),
                ));
                (service, task)
            });
        }
        tokio::select! {
            () = cancel.cancelled() => break,
            // After the loss of the configuration source this branch is disabled, and only the
            // interfaces are checked.
            Ok(()) = site.changed() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
    for (_, mut task) in running.into_values() {
        task.shutdown().await;
    }
}

/// Returns the wanted listeners: TFTP and HTTP per address, and DHCP per interface, because a
/// second DHCP listener could not bind the port.
fn services(site: &Site) -> BTreeMap<String, Service> {
    let mut services = BTreeMap::new();
    for subnet in site.subnets.iter().map(|segment| &segment.subnet) {
        let address = subnet.agent_address;
        services.insert(format!("TFTP on {address}"), Service::Tftp(address));
        services.insert(format!("HTTP on {address}"), Service::Http(address));
        if subnet.mode == DhcpMode::Off {
            continue;
        }
        let place = interface_of(address).unwrap_or_else(|_| address.to_string());
        let none = || {
            Service::Dhcp(DhcpLink {
                addresses: Vec::new(),
                authoritative: false,
                proxy: false,
            })
        };
        if let Service::Dhcp(link) = services
            .entry(format!("DHCP on {place}"))
            .or_insert_with(none)
        {
            if !link.addresses.contains(&address) {
                link.addresses.push(address);
            }
            link.authoritative |= subnet.mode == DhcpMode::Authoritative;
            link.proxy |= subnet.mode == DhcpMode::Proxy;
        }
    }
    services
}

/// Restarts a listener as long as the configuration needs it. An interface can appear, or a port
/// become free.
async fn keep(shared: Arc<Shared>, name: String, service: Service, health: watch::Sender<Health>) {
    let mut pause = Duration::from_secs(1);
    loop {
        let up = || {
            tracing::info!("{name}: listening");
            health.send_modify(|health| _ = health.insert(name.clone(), ListenerState::Up));
        };
        let ended = match &service {
            Service::Dhcp(link) => dhcp::serve(Arc::clone(&shared), link.clone(), up).await,
            Service::Tftp(address) => tftp::serve(Arc::clone(&shared), *address, up).await,
            Service::Http(address) => listener::serve(Arc::clone(&shared), *address, up).await,
        };
        let why = ended.map_or_else(explain, |()| "it ended".to_owned());
        let was = health.borrow().get(&name).cloned();
        let is = ListenerState::Down(why.clone());
        if was == Some(ListenerState::Up) {
            pause = Duration::from_secs(1);
        }
        // The error is logged once and not for every attempt.
        if was.as_ref() != Some(&is) {
            tracing::error!("{name}: listener failed: {why}; retrying");
        }
        health.send_modify(|health| _ = health.insert(name.clone(), is));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn explain(error: ListenError) -> String {
    match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
