//! The fleet, declared by a client. All objects belong to a single site, so objects of a running server
//! stay unchanged.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::Context;
use futures::{StreamExt as _, TryStreamExt as _};
use muster_api::client::{Client, Precondition};
use muster_core::values::{Digest, Mac};
use serde_json::{Value, json};

use super::follow::Declared;
use super::{FleetOptions, NODES_IN_RACK, SITE, Until};
use crate::simulated::machine::Machine;
use crate::simulated::rack::Rack;

/// Concurrent declarations.
const AT_ONCE: usize = 8;
const NODE_W: u32 = 10_000;

/// Returns the machines behind the nodes.
pub(super) fn machines(options: &FleetOptions) -> Rack {
    let machine = |number| Machine::new(name(number), mac(number)).with(options.habits);
    Rack::of((1..=options.nodes).map(machine))
}

fn name(number: u32) -> String {
    format!("sim-{number:05}")
}

/// Returns a locally administered address, used by no vendor.
fn mac(number: u32) -> Mac {
    let [a, b, c, d] = number.to_be_bytes();
    Mac([0x02, 0x53, a, b, c, d])
}

/// Returns the number's address in a network of /16.
fn address(network: u8, number: u32) -> Ipv4Addr {
    let [_, _, high, low] = (number + 255).to_be_bytes();
    Ipv4Addr::new(10, network, high, low)
}

/// Declares the site, so that its agent can be enrolled.
pub(super) async fn site(client: &Client) -> anyhow::Result<()> {
    put(client, "sites", SITE, site_spec()).await.map(drop)
}

fn site_spec() -> Value {
    json!({
        "live": { "kernel": digest("kernel"), "initrd": digest("initrd") },
        "bmc_networks": ["10.129.0.0/16"],
    })
}

/// Limits the nodes out of service: of the pool, and of each rack.
pub(super) async fn budgets(
    client: &Client,
    of_pool: String,
    of_rack: String,
) -> anyhow::Result<()> {
    let axis = json!({ "name": "rack", "source": "rack", "max_unavailable": of_rack });
    let (mut site, mut pool) = (site_spec(), pool());
    site["failure_domains"] = json!([axis]);
    pool["max_unavailable"] = json!(of_pool);
    put(client, "sites", SITE, site).await?;
    put(client, "pools", SITE, pool).await.map(drop)
}

/// Declares all objects needed by nodes.
pub(super) async fn kinds(client: &Client, options: &FleetOptions) -> anyhow::Result<()> {
    for number in 0..options.nodes.div_ceil(NODES_IN_RACK) {
        let budget = json!({ "site": SITE, "units": NODES_IN_RACK, "power_budget_w": NODES_IN_RACK * NODE_W });
        put(client, "racks", &rack(number), budget).await?;
    }
    let subnet = json!({ "site": SITE, "network": "10.128.0.0/16", "agent_address": "10.128.0.1", "mode": "authoritative" });
    let profile = json!({
        "model": SITE, "sockets": 1, "cores_per_socket": 2, "memory_mib": 1800, "schedulable_memory_mib": 1500,
        "root_disk": { "serial_prefix": "ROOT" }, "power_max_w": NODE_W,
    });
    let image = json!({
        "name": SITE, "version": "1", "os": "debian", "os_version": "12", "arch": "amd64", "digest": digest("image"),
        "size": 1000, "raw_digest": digest("raw"), "raw_size": 4000, "kernel": "6.1.0-1-amd64", "packages": [],
        "partitions": { "esp": 1, "root": 2 },
    });
    let suite = json!({ "name": SITE, "version": "1", "gates": [{
        "id": "node.profile", "title": "Facts fit the profile", "stage": "inventory", "timeout_s": 30, "parser": "facts",
        "criteria": [{ "metric": "profile.misses", "op": "==", "limit": 0, "unit": "misses" }],
        "finding": "The machine is not what was bought.", "after_reboot": true,
    }]});
    let cluster = json!({
        "kind": "slurm", "site": SITE, "conf": "/etc/slurm/slurm.conf", "include_dir": "/etc/slurm", "partition": "gpu",
        "address": "10.128.0.1",
    });
    let bmc = json!({ "purpose": "bmc", "user": "root", "secret": hex::encode(rand::random::<[u8; 12]>()) });
    put(client, "subnets", SITE, subnet).await?;
    put(client, "hardware_profiles", SITE, profile).await?;
    put(client, "credentials", SITE, bmc).await?;
    put(client, "images", SITE, image).await?;
    put(client, "stacks", SITE, stack("1", &["nouveau.modeset=0"])).await?;
    put(client, "suites", SITE, suite).await?;
    put(client, "clusters", SITE, cluster).await?;
    put(client, "pools", SITE, pool()).await.map(drop)
}

fn stack(version: &str, kernel_args: &[&str]) -> Value {
    json!({
        "version": version, "image": SITE, "packages": { "chrony": "4.3-2" }, "bundle": digest("bundle"),
        "kernel_args": kernel_args,
        "lock": { "image_digest": digest("image"), "arch": "amd64", "packages": [] },
    })
}

/// Publishes the next version of the stack. The pool gets revision 2, and no node changes.
pub(super) async fn next_stack(client: &Client) -> anyhow::Result<()> {
    let next = stack("2", &["nouveau.modeset=0", "iommu=pt"]);
    put(client, "stacks", SITE, next).await.map(drop)
}

fn pool() -> Value {
    json!({ "image": SITE, "stack": SITE, "suite": SITE, "cluster": SITE, "undo_window_s": 0, "max_unavailable": "100%" })
}

/// Gives the pool a sweep and a recovery policy.
pub(super) async fn health(client: &Client, health: Value) -> anyhow::Result<()> {
    let mut pool = pool();
    pool["health"] = health;
    put(client, "pools", SITE, pool).await.map(drop)
}

/// Declares the nodes. Each node is accepted at once.
pub(super) async fn nodes(client: &Client, options: &FleetOptions) -> anyhow::Result<Declared> {
    let accept = options.until > Until::Declared;
    let first = node(client, 1, accept).await?;
    // Earlier events are skipped.
    let before = client
        .events(0, &[("node", &name(1)), ("limit", "1")])
        .await?
        .items
        .first()
        .map_or(0, |event| event.seq - 1);
    let rest = futures::stream::iter(2..=options.nodes).map(|number| node(client, number, accept));
    let rest: Vec<_> = rest.buffer_unordered(AT_ONCE).try_collect().await?;
    let ids: BTreeMap<_, _> = std::iter::once(first).chain(rest).collect();
    Ok(Declared { before, ids })
}

async fn node(client: &Client, number: u32, accept: bool) -> anyhow::Result<(uuid::Uuid, String)> {
    let bmc = json!({ "address": address(129, number), "credential": SITE });
    let spec = json!({
        "site": SITE, "rack": rack((number - 1) / NODES_IN_RACK), "rack_unit": (number - 1) % NODES_IN_RACK + 1, "profile": SITE,
        "power": { "redfish": { "bmc": bmc } }, "accept": accept,
        "macs": [{ "mac": mac(number), "subnet": SITE, "address": address(128, number) }],
    });
    let name = name(number);
    let answer = put(client, "nodes", &name, spec).await?;
    let id = answer["id"]
        .as_str()
        .and_then(|id| id.parse().ok())
        .context("a node without an id")?;
    Ok((id, name))
}

fn rack(number: u32) -> String {
    format!("{SITE}-{number:03}")
}

/// Returns a placeholder digest. No blob is fetched.
fn digest(of: &str) -> Digest {
    Digest::of(of.as_bytes())
}

async fn put(client: &Client, collection: &str, name: &str, spec: Value) -> anyhow::Result<Value> {
    let body = json!({ "spec": spec });
    let answer = client
        .put_value(&[collection, name], &body, Precondition::None)
        .await;
    answer.with_context(|| format!("declare {collection}/{name}"))
}
