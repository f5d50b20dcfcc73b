//! Measures the agent's boot services alone, without a server: `serve-boot SITE.json DATA_DIR
//! [--loader FILE]… [--blob FILE]…`. Prints the digest of each blob, then `up` when every listener
//! is up. Serves until killed.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use muster_agent::blobs::BlobCache;
use muster_agent::boot::arm::ArmedBoots;
use muster_agent::boot::loaders::IpxeBinaries;
use muster_agent::boot::{BootOptions, BootPorts, BootServices, Health, ListenerState};
use muster_agent::contact::Contact;
use muster_core::clock::Clock;
use muster_core::wire::calls::SiteConfig;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(site), Some(data_dir)) = (arguments.next(), arguments.next().map(PathBuf::from))
    else {
        bail!("usage: serve-boot SITE.json DATA_DIR [--loader FILE]… [--blob FILE]…");
    };
    let site: SiteConfig =
        serde_json::from_slice(&std::fs::read(&site).context("the site's file")?)?;
    let blobs = BlobCache::at(data_dir.join("blobs")).await?;
    let mut ipxe = IpxeBinaries::default();
    while let (Some(kind), Some(file)) = (arguments.next(), arguments.next().map(PathBuf::from)) {
        match kind.as_str() {
            "--loader" => {
                let name = file
                    .file_name()
                    .and_then(|name| name.to_str())
                    .context("a loader has a name")?;
                ipxe = IpxeBinaries::of([(name, Bytes::from(std::fs::read(&file)?))]);
            }
            "--blob" => println!("{}", blobs.put_file(&file).await?.hex()),
            other => bail!("{other} is not an option"),
        }
    }
    serve(data_dir, blobs, ipxe, site).await
}

async fn serve(
    data_dir: PathBuf,
    blobs: BlobCache,
    ipxe: IpxeBinaries,
    site: SiteConfig,
) -> anyhow::Result<()> {
    let (_trust, trust) = watch::channel(None);
    let (_config, config) = watch::channel(Some(site));
    let (queue, mut seen) = mpsc::channel(64);
    let (clock, contact, ports) = (Clock::System, Contact::unneeded(), BootPorts::default());
    let options = BootOptions {
        data_dir,
        blobs,
        ipxe,
        trust,
        clock,
        contact,
        ports,
    };
    let services = BootServices::start(
        options,
        config,
        ArmedBoots::new(),
        queue,
        CancellationToken::new(),
    )
    .await?;
    let mut health = services.health();
    let all_up = |health: &Health| {
        !health.is_empty() && health.values().all(|state| *state == ListenerState::Up)
    };
    let mut down = services.health();
    let failed = async {
        let is_down = |health: &Health| {
            health
                .values()
                .any(|state| matches!(state, ListenerState::Down(_)))
        };
        down.wait_for(is_down)
            .await
            .map(|health| format!("{:?}", *health))
    };
    tokio::select! {
        up = health.wait_for(all_up) => drop(up?),
        why = failed => bail!("{}", why?),
    }
    println!("up");
    // The agent sends sightings to the server. The benchmark drops the sightings.
    while seen.recv().await.is_some() {}
    Ok(())
}
