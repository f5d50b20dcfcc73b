//! Boot files over a wire that loses, repeats and reorders datagrams.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use muster_agent::blobs::BlobCache;
use muster_agent::boot::arm::ArmedBoots;
use muster_agent::boot::loaders::IpxeBinaries;
use muster_agent::boot::{BootOptions, BootPorts, BootServices, Health, ListenerState};
use muster_agent::contact::Contact;
use muster_core::clock::Clock;
use muster_core::wire::calls::{DhcpMode, SiteConfig, Subnet};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::support::wire::{Way, Wire};

const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const LOADER: &str = "snponly.efi";

async fn free_port() -> u16 {
    UdpSocket::bind((HOST, 0))
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn site() -> SiteConfig {
    let subnet = Subnet {
        name: "prov".into(),
        network: "127.0.0.0/8".parse().unwrap(),
        agent_address: HOST,
        gateway: None,
        dns: Vec::new(),
        mode: DhcpMode::Off,
        dynamic_range: None,
        reservations: Vec::new(),
        relays: Vec::new(),
    };
    SiteConfig {
        revision: "1".into(),
        site: "lab".into(),
        subnets: vec![subnet],
        consoles: Vec::new(),
        console_networks: Vec::new(),
    }
}

/// The boot services on loopback, with one loader; the TFTP port.
async fn serve(
    data: &std::path::Path,
    loader: &[u8],
    cancel: &CancellationToken,
) -> (BootServices, SocketAddr) {
    let ports = BootPorts {
        tftp: free_port().await,
        http: free_port().await,
        ..BootPorts::default()
    };
    let options = BootOptions {
        data_dir: data.to_owned(),
        blobs: BlobCache::at(data.join("blobs")).await.unwrap(),
        ipxe: IpxeBinaries::of([(LOADER, loader.to_vec().into())]),
        trust: watch::channel(None).1,
        clock: Clock::System,
        contact: Contact::unneeded(),
        ports,
    };
    let (_, configs) = watch::channel(Some(site()));
    let services = BootServices::start(
        options,
        configs,
        ArmedBoots::new(),
        mpsc::channel(8).0,
        cancel.clone(),
    );
    let services = services.await.unwrap();
    let up = |health: &Health| {
        !health.is_empty() && health.values().all(|state| *state == ListenerState::Up)
    };
    let mut health = services.health();
    tokio::time::timeout(Duration::from_secs(20), health.wait_for(up))
        .await
        .unwrap()
        .unwrap();
    (services, SocketAddr::from((HOST, ports.tftp)))
}

/// RFC 1350 as firmware does it: what is not answered is said again, what comes twice is acknowledged and not kept.
async fn fetch(server: SocketAddr) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind((HOST, 0)).await.unwrap();
    let mut said = [b"\0\x01", LOADER.as_bytes(), b"\0octet\0"].concat();
    let (mut content, mut next, mut buffer) = (Vec::new(), 1_u16, [0; 1500]);
    let mut unanswered = 0;
    while unanswered < 80 {
        socket.send_to(&said, server).await.unwrap();
        let heard =
            tokio::time::timeout(Duration::from_millis(100), socket.recv_from(&mut buffer)).await;
        unanswered += 1;
        let Ok(Ok((length, _))) = heard else { continue };
        let [0, 3, high, low, data @ ..] = &buffer[..length] else {
            return None;
        };
        if u16::from_be_bytes([*high, *low]) == next {
            content.extend_from_slice(data);
            said = vec![0, 4, *high, *low];
            next = next.wrapping_add(1);
            unanswered = 0;
            if data.len() < 512 {
                return Some(content);
            }
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loader_comes_whole_over_a_wire_that_loses_repeats_and_reorders() {
    let (data, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let loader: Vec<u8> = (0..4_000_u32).map(|at| (at % 251) as u8).collect();
    let (services, server) = serve(data.path(), &loader, &cancel).await;
    let wire = Wire::datagrams(server).await;
    assert_eq!(
        fetch(wire.address).await.as_deref(),
        Some(&loader[..]),
        "over a good one"
    );
    let bad = Way {
        lost: 10,
        twice: 10,
        late: 10,
        ..Way::default()
    };
    wire.set(|faults| (faults.there, faults.back) = (bad, bad));
    let mut came = None;
    for _ in 0..5 {
        // It may end without the loader; what comes is the loader.
        came = fetch(wire.address).await;
        if came.is_some() {
            break;
        }
    }
    assert_eq!(came.as_deref(), Some(&loader[..]));
    cancel.cancel();
    services.stopped().await;
}
