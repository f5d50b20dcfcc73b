//! Boots a machine by hand, without a server, to try the firmware of a new model. Serves DHCP, TFTP
//! and HTTP on a local address and arms the live image for the given MAC. Prints each boot request
//! of the machine until the machine reports its host key or the time is over.
//!
//! Usage, as root: `boot_one ADDRESS/PREFIX MAC NODE_ADDRESS IPXE_DIR LIVE_DIR SECONDS`. A
//! `LIVE_DIR` of `-` arms no image, to watch a boot from the local disk.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use muster_agent::blobs::BlobCache;
use muster_agent::boot::arm::{ArmedBoots, ArmedHandle};
use muster_agent::boot::loaders::IpxeBinaries;
use muster_agent::boot::{BootOptions, BootPorts, BootServices};
use muster_agent::contact::Contact;
use muster_core::clock::Clock;
use muster_core::ids::{NodeId, PermitId};
use muster_core::values::{Mac, Secret};
use muster_core::wire::bmc::Power;
use muster_core::wire::calls::{DhcpMode, Reservation, SiteConfig, Subnet};
use muster_core::wire::job::BootLive;
use muster_core::wire::login::UserKey;
use muster_core::wire::node::SiteTrust;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [agent, mac, address, ipxe, live, seconds] = arguments.as_slice() else {
        bail!("usage: boot_one ADDRESS/PREFIX MAC NODE_ADDRESS IPXE_DIR LIVE_DIR|- SECONDS");
    };
    let agent: ipnet::Ipv4Net = agent.parse().context("ADDRESS/PREFIX")?;
    let (mac, address): (Mac, Ipv4Addr) = (mac.parse()?, address.parse()?);
    let patience = Duration::from_secs(seconds.parse().context("SECONDS")?);
    let data = std::env::temp_dir().join(format!("boot_one.{}", std::process::id()));
    let blobs = BlobCache::at(data.join("blobs")).await?;
    let armed = ArmedBoots::new();
    let handle = match live.as_str() {
        "-" => None,
        live => Some(arm(&armed, &blobs, Path::new(live), mac, address).await?),
    };
    let outcome = tokio::select! {
        outcome = serve(&data, blobs, armed, PathBuf::from(ipxe), site(agent, mac, address)) => outcome,
        report = reported(handle.as_ref()) => report,
        () = tokio::time::sleep(patience) => Err(anyhow::anyhow!("nothing was reported within {} s", patience.as_secs())),
    };
    tokio::fs::remove_dir_all(&data).await?;
    outcome
}

async fn arm(
    armed: &ArmedBoots,
    blobs: &BlobCache,
    live: &Path,
    mac: Mac,
    address: Ipv4Addr,
) -> anyhow::Result<ArmedHandle> {
    let spec = BootLive {
        power: Power::Manual {
            person: "you".to_owned(),
        },
        permit: PermitId::new(),
        macs: vec![mac],
        address,
        nonce: hex::encode(rand::random::<[u8; 16]>()),
        kernel: blobs.put_file(&live.join("vmlinuz")).await?,
        initrd: blobs.put_file(&live.join("initrd.zst")).await?,
        user_key: UserKey {
            private_key: Secret::new(""),
            certificate: String::new(),
        },
        expect_uuid: None,
        expect_serial: None,
    };
    Ok(armed.arm(NodeId::new(), &spec)?)
}

fn site(agent: ipnet::Ipv4Net, mac: Mac, address: Ipv4Addr) -> SiteConfig {
    let reservation = Reservation {
        node: NodeId::new(),
        name: "by-hand".to_owned(),
        mac,
        address,
    };
    let subnet = Subnet {
        name: "by-hand".to_owned(),
        network: agent.trunc(),
        agent_address: agent.addr(),
        gateway: None,
        dns: vec![],
        mode: DhcpMode::Authoritative,
        dynamic_range: None,
        reservations: vec![reservation],
        relays: vec![],
    };
    SiteConfig {
        revision: "by hand".to_owned(),
        site: "by-hand".to_owned(),
        subnets: vec![subnet],
        consoles: Vec::new(),
    }
}

async fn serve(
    data: &Path,
    blobs: BlobCache,
    armed: ArmedBoots,
    ipxe: PathBuf,
    site: SiteConfig,
) -> anyhow::Result<()> {
    let nobody = SiteTrust {
        protocol: 1,
        permit_public_key: String::new(),
        user_ca: String::new(),
        agent_url: String::new(),
    };
    let (_trust, trust) = watch::channel(Some(nobody));
    let (_config, config) = watch::channel(Some(site));
    let (queue, mut seen) = mpsc::channel(64);
    let options = BootOptions {
        data_dir: data.to_owned(),
        blobs,
        ipxe: IpxeBinaries::load(&ipxe)?,
        trust,
        clock: Clock::System,
        contact: Contact::unneeded(),
        ports: BootPorts::default(),
    };
    let services =
        BootServices::start(options, config, armed, queue, CancellationToken::new()).await?;
    let mut health = services.health();
    loop {
        tokio::select! {
            Some(sighting) = seen.recv() => {
                let sighting = serde_json::to_string(&sighting)?;
                println!("{sighting}");
            }
            Ok(()) = health.changed() => println!("{:?}", *health.borrow_and_update()),
            else => return Ok(()),
        }
    }
}

async fn reported(handle: Option<&ArmedHandle>) -> anyhow::Result<()> {
    match handle {
        Some(handle) => {
            println!("reported: {:?}", handle.report().await?);
            Ok(())
        }
        None => std::future::pending().await,
    }
}
