//! The configuration of a site's boot services, by long poll. The answer is sent when the
//! configuration differs from the agent's copy.

use std::net::Ipv4Addr;
use std::time::Duration;

use axum::extract::State;
use http::HeaderMap;
use ipnet::IpNet;
use muster_core::out_of_band::may_connect;
use muster_core::values::Digest;
use muster_core::wire::calls::{
    ConsoleTarget, DhcpMode, Reservation, SiteConfig, SitePoll, Subnet,
};
use muster_core::wire::orders::reads_site;
use serde::Deserialize;
use sqlx::PgConnection;

use super::jobs::declared_orders;
use super::{Agent, Standing, authorities};
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
    headers: HeaderMap,
    Json(request): Json<SitePoll>,
) -> Result<Json<SiteConfig>, Error> {
    authorities::record(&app, &agent).await?;
    let deadline =
        tokio::time::Instant::now() + Duration::from_secs(request.wait_s.min(MAX_WAIT_S));
    let reads = reads_site(declared_orders(&headers));
    loop {
        let woken = app.wake_sites.notified();
        let Loaded { config, left_out } = load(&app, &agent, request.epoch, reads).await?;
        if request.have.as_ref() != Some(&config.revision)
            || tokio::time::Instant::now() >= deadline
        {
            for LeftOut { part, why } in left_out {
                tracing::warn!(
                    site = agent.site_name,
                    part,
                    why,
                    "the agents of the site get no configuration of this part; write the spec again"
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

/// A site's configuration, and the parts with an unreadable stored spec.
struct Loaded {
    config: SiteConfig,
    left_out: Vec<LeftOut>,
}

/// A part left out of the configuration until its spec is written again: a subnet, or the consoles.
struct LeftOut {
    part: String,
    why: String,
}

async fn load(app: &App, agent: &Agent, epoch: i64, reads: bool) -> Result<Loaded, Error> {
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
            console_networks: Vec::new(),
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
            Err(why) => left_out.push(LeftOut {
                part: format!("subnet {name}"),
                why,
            }),
        }
    }
    let Consoles { targets, networks } = match load_consoles(&mut conn, agent, reads).await? {
        Ok(consoles) => consoles,
        Err(unreadable) => {
            left_out.push(unreadable);
            Consoles::default()
        }
    };
    conn.commit().await?;
    // Without networks the revision is that of the version before.
    let document = match networks.is_empty() {
        true => serde_json::to_vec(&(&subnets, &targets)),
        false => serde_json::to_vec(&(&subnets, &targets, &networks)),
    };
    let config = SiteConfig {
        revision: Digest::of(&document.map_err(Error::internal)?).hex(),
        site: agent.site_name.clone(),
        subnets,
        consoles: targets,
        console_networks: networks,
    };
    Ok(Loaded { config, left_out })
}

/// The consoles of a site, and the networks of the consoles.
#[derive(Default)]
struct Consoles {
    targets: Vec<ConsoleTarget>,
    networks: Vec<IpNet>,
}

/// Loads the consoles. An older agent gets no networks, and only the consoles inside. With an
/// unreadable list of networks every console is left out, because an empty list has no limit.
async fn load_consoles(
    conn: &mut PgConnection,
    agent: &Agent,
    reads: bool,
) -> Result<Result<Consoles, LeftOut>, Error> {
    let mut targets = db::consoles::list_targets(conn, agent.site).await?;
    let site = db::objects::find_by_id(conn, agent.site).await?;
    let spec = site.map(|site| site.spec).unwrap_or_default();
    let mut networks = match document::stored_networks(&spec, "console_networks") {
        Ok(networks) => networks,
        Err(why) => {
            let part = "consoles".to_owned();
            return Ok(Err(LeftOut { part, why }));
        }
    };
    if !reads {
        targets.retain(|target| may_connect(&networks, target.address));
        networks.clear();
    }
    Ok(Ok(Consoles { targets, networks }))
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
