//! The configuration of a site's boot services, by long poll. The answer is sent when the
//! configuration differs from the agent's copy.

use std::net::Ipv4Addr;
use std::time::Duration;

use axum::extract::State;
use muster_core::values::Digest;
use muster_core::wire::calls::{DhcpMode, Reservation, SiteConfig, SitePoll, Subnet};
use serde::Deserialize;

use super::{Agent, Standing};
use crate::app::App;
use crate::db;
use crate::document;
use crate::error::Error;
use crate::http::extract::Json;

const MAX_WAIT_S: u64 = 50;
const LOOK: Duration = Duration::from_secs(2);
const GATHER: Duration = Duration::from_millis(200);

pub(super) async fn poll(
    State(app): State<App>,
    agent: Agent,
    Json(request): Json<SitePoll>,
) -> Result<Json<SiteConfig>, Error> {
    let deadline =
        tokio::time::Instant::now() + Duration::from_secs(request.wait_s.min(MAX_WAIT_S));
    loop {
        let woken = app.wake_sites.notified();
        let Loaded { config, left_out } = load(&app, &agent, request.epoch).await?;
        if request.have.as_ref() != Some(&config.revision)
            || tokio::time::Instant::now() >= deadline
        {
            for LeftOut { subnet, why } in left_out {
                tracing::warn!(
                    site = agent.site_name,
                    subnet,
                    why,
                    "the agents of the site get no configuration of the subnet; write its spec again"
                );
            }
            return Ok(Json(config));
        }
        tokio::select! {
            // A bulk declaration of a thousand nodes makes a thousand changes; the delay reads many
            // of them together.
            () = woken => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(LOOK) => {}
            () = tokio::time::sleep_until(deadline) => {}
        }
    }
}

/// The members of a subnet's spec used by boot services.
#[derive(Deserialize)]
struct SubnetDocument {
    network: ipnet::Ipv4Net,
    agent_address: Ipv4Addr,
    #[serde(default)]
    gateway: Option<Ipv4Addr>,
    #[serde(default)]
    dns: Vec<Ipv4Addr>,
    mode: DhcpMode,
    #[serde(default)]
    dynamic_range: Option<Range>,
    #[serde(default)]
    relays: Vec<Ipv4Addr>,
}

#[derive(Deserialize)]
struct Range {
    first: Ipv4Addr,
    last: Ipv4Addr,
}

/// A site's configuration, and the subnets with an unreadable stored spec.
struct Loaded {
    config: SiteConfig,
    left_out: Vec<LeftOut>,
}

/// A subnet left out of the configuration until its spec is written again.
struct LeftOut {
    subnet: String,
    why: String,
}

async fn load(app: &App, agent: &Agent, epoch: i64) -> Result<Loaded, Error> {
    let mut conn = app.pool.begin().await?;
    let standing = agent.fence_again(&mut conn, epoch, app).await?;
    if standing == Standing::StandsBy {
        conn.commit().await?;
        // Two boot services must not answer the same machines: one would send a boot script, and
        // the other would send the machine to its disk.
        let (site, revision) = (agent.site_name.clone(), "standby".to_owned());
        let config = SiteConfig {
            revision,
            site,
            subnets: Vec::new(),
            consoles: Vec::new(),
        };
        return Ok(Loaded {
            config,
            left_out: Vec::new(),
        });
    }
    let reservations = db::agents::list_reservations(&mut conn, agent.site).await?;
    let mut subnets = Vec::new();
    let mut left_out = Vec::new();
    for (id, name, spec) in db::agents::list_subnets(&mut conn, agent.site).await? {
        let own = reservations
            .iter()
            .filter(|row| row.subnet == id)
            .map(|row| Reservation {
                node: row.node,
                name: row.name.clone(),
                mac: row.mac,
                address: row.address,
            });
        match document::stored_spec::<SubnetDocument>(&spec) {
            Ok(document) => subnets.push(build_subnet(name, document, own.collect())),
            Err(why) => left_out.push(LeftOut { subnet: name, why }),
        }
    }
    let consoles = db::consoles::list_targets(&mut conn, agent.site).await?;
    conn.commit().await?;
    let document = serde_json::to_vec(&(&subnets, &consoles)).map_err(Error::internal)?;
    let config = SiteConfig {
        revision: Digest::of(&document).hex(),
        site: agent.site_name.clone(),
        subnets,
        consoles,
    };
    Ok(Loaded { config, left_out })
}

fn build_subnet(name: String, document: SubnetDocument, reservations: Vec<Reservation>) -> Subnet {
    Subnet {
        name,
        network: document.network,
        agent_address: document.agent_address,
        gateway: document.gateway,
        dns: document.dns,
        mode: document.mode,
        dynamic_range: document
            .dynamic_range
            .map(|range| (range.first, range.last)),
        reservations,
        relays: document.relays,
    }
}
