//! Declares the fleet as any API client does: first blobs, then objects in the order of their
//! references.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use muster_api::client::{Client, Precondition};
use muster_core::values::Digest;
use serde_json::{Value, json};

use super::addresses::address;
use super::artifacts::{Artifacts, digest, toml_as_json};
use super::{DemoOptions, cabling, firmware, network};
use crate::nfs::Nfs;
use crate::plan::{
    BmcPlan, GATEWAY, MachinePlan, OOB_NETWORK, RackPlan, STRANGER, console_address,
};
use crate::slurm::Slurm;

/// Power budget of the rack in watts. With the power maximum in the profile, two of the three
/// machines may be on at a time.
const RACK_BUDGET_W: u32 = 450;

/// Uploads the live image and declares the site. The site's agent can be enrolled afterwards.
pub(super) async fn site(client: &Client, options: &DemoOptions) -> anyhow::Result<()> {
    let [kernel, initrd] = options.artifacts.live();
    let live = json!({ "kernel": upload(client, &kernel).await?, "initrd": upload(client, &initrd).await? });
    let site =
        json!({ "live": live, "bmc_networks": [OOB_NETWORK], "console_networks": [OOB_NETWORK] });
    put(client, "sites", "lab", site).await
}

/// Declares all other objects of the main job, with the nodes last. The undeclared machine is
/// skipped.
pub(super) async fn fleet(
    client: &Client,
    options: &DemoOptions,
    plan: &RackPlan,
    slurm: &Slurm,
) -> anyhow::Result<()> {
    let rack = json!({ "site": "lab", "units": 12, "power_budget_w": RACK_BUDGET_W, "cables": cabling::plan(plan) });
    put(client, "racks", "r1", rack).await?;
    put(client, "subnets", "provisioning", subnet()).await?;
    put(
        client,
        "hardware_profiles",
        "virtual-node",
        toml_as_json(&options.artifacts.profile)?,
    )
    .await?;
    put(
        client,
        "suites",
        "admit-cpu",
        toml_as_json(&options.artifacts.suite)?,
    )
    .await?;
    image_and_stack(client, options, slurm).await?;
    let cluster = json!({
        "kind": "slurm", "site": "lab", "conf": slurm.client_conf, "include_dir": slurm.include_dir, "partition": "gpu",
        "address": GATEWAY,
    });
    put(client, "clusters", "slurm-lab", cluster).await?;
    put(client, "network_profiles", "bonded", network::profile()).await?;
    let pool = json!({
        "image": "debian-12", "stack": "cpu-slurm", "suite": "admit-cpu", "cluster": "slurm-lab", "max_unavailable": "100%", "network_profile": "bonded",
    });
    put(client, "pools", "cpu", pool).await?;
    for (index, machine) in plan
        .machines
        .iter()
        .enumerate()
        .filter(|(_, machine)| machine.name.as_str() != STRANGER)
    {
        node(client, index, machine).await?;
    }
    Ok(())
}

/// Returns the rack's provisioning network.
pub(super) fn subnet() -> Value {
    json!({
        "site": "lab", "network": "10.77.0.0/24", "agent_address": GATEWAY, "gateway": GATEWAY, "mode": "authoritative",
        "dynamic_range": { "first": "10.77.0.200", "last": "10.77.0.220" },
    })
}

async fn image_and_stack(
    client: &Client,
    options: &DemoOptions,
    slurm: &Slurm,
) -> anyhow::Result<()> {
    image(client, options).await?;
    munge_key(client, slurm).await?;
    blobs_of_stack(client, options).await?;
    let mut stack = toml_as_json(&options.artifacts.stack)?;
    firmware::want(client, options, &mut stack).await?;
    put(client, "stacks", "cpu-slurm", stack).await
}

pub(super) async fn image(client: &Client, options: &DemoOptions) -> anyhow::Result<()> {
    upload(client, &options.artifacts.image()).await?;
    put(
        client,
        "images",
        "debian-12",
        serde_json::to_value(options.artifacts.image_manifest()?)?,
    )
    .await
}

pub(super) async fn munge_key(client: &Client, slurm: &Slurm) -> anyhow::Result<()> {
    let key = std::fs::read(&slurm.munge_key).context("the munge key")?;
    let secret = format!(
        "base64:{}",
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, key)
    );
    put(
        client,
        "credentials",
        "munge-key",
        json!({ "purpose": "stack", "secret": secret }),
    )
    .await
}

/// Uploads the stack's bundle and every file named in the bundle.
pub(super) async fn blobs_of_stack(client: &Client, options: &DemoOptions) -> anyhow::Result<()> {
    let stack = toml_as_json(&options.artifacts.stack)?;
    let bundle = stack["bundle"]
        .as_str()
        .context("the stack has no bundle; make one with `muster stack lock`")?;
    upload_known(client, bundle.parse()?, &options.artifacts.bundle).await?;
    for path in bundle_files(&options.artifacts)?.values() {
        upload(client, path).await?;
    }
    Ok(())
}

/// Returns every file named in the stack's bundle, with the path of its blob.
pub(super) fn bundle_files(artifacts: &Artifacts) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let stack = toml_as_json(&artifacts.stack)?;
    let bundle: Digest = stack["bundle"]
        .as_str()
        .context("the stack has no bundle")?
        .parse()?;
    let text = std::fs::read(blob_path(&artifacts.bundle, bundle)).context("the bundle's blob")?;
    let document: Value = serde_json::from_slice(&text)?;
    let files = document["files"]
        .as_object()
        .context("the bundle names no files")?;
    let named = files
        .iter()
        .filter_map(|(name, digest)| Some((name.clone(), digest.as_str()?.parse().ok()?)));
    Ok(named
        .map(|(name, digest)| (name, blob_path(&artifacts.bundle, digest)))
        .collect())
}

/// Declares the credential for the single login to an adopted machine.
pub(super) async fn adopting_credential(
    client: &Client,
    name: &str,
    secret: &str,
) -> anyhow::Result<()> {
    put(
        client,
        "credentials",
        name,
        json!({ "purpose": "adopt", "secret": secret }),
    )
    .await
}

fn blob_path(dir: &Path, digest: Digest) -> std::path::PathBuf {
    dir.join("sha256").join(digest.hex())
}

pub(super) async fn upload(client: &Client, path: &Path) -> anyhow::Result<Digest> {
    let digest = digest(path)?;
    client
        .upload_blob(digest, path)
        .await
        .with_context(|| format!("upload {}", path.display()))?;
    Ok(digest)
}

async fn upload_known(client: &Client, digest: Digest, dir: &Path) -> anyhow::Result<()> {
    client
        .upload_blob(digest, &blob_path(dir, digest))
        .await
        .with_context(|| format!("upload {digest}"))
}

pub(super) async fn node(
    client: &Client,
    index: usize,
    machine: &MachinePlan,
) -> anyhow::Result<()> {
    let name = machine.name.as_str();
    let power = match &machine.bmc {
        Some(bmc) => redfish(client, name, bmc).await?,
        None => json!({ "manual": { "person": "the lab" } }),
    };
    let console = console_address(index);
    let spec = json!({
        "site": "lab", "rack": "r1", "rack_unit": index + 1, "profile": "virtual-node", "serial": machine.serial,
        "smbios_uuid": machine.uuid, "power": power, "accept": false,
        "console": { "tcp": { "address": console.ip(), "port": console.port() } },
        "macs": [{ "mac": machine.mac, "subnet": "provisioning", "address": address(index) }],
    });
    let body = json!({ "labels": { "nfs": Nfs::source() }, "spec": spec });
    declare(client, "nodes", name, &body).await
}

async fn redfish(client: &Client, name: &str, bmc: &BmcPlan) -> anyhow::Result<Value> {
    let credential = format!("bmc-{name}");
    let secret = json!({ "purpose": "bmc", "user": bmc.user, "secret": bmc.password });
    put(client, "credentials", &credential, secret).await?;
    Ok(json!({ "redfish": { "bmc": { "address": bmc.address, "credential": credential } } }))
}

pub(super) async fn put(
    client: &Client,
    collection: &str,
    name: &str,
    spec: Value,
) -> anyhow::Result<()> {
    declare(client, collection, name, &json!({ "spec": spec })).await
}

async fn declare(
    client: &Client,
    collection: &str,
    name: &str,
    body: &Value,
) -> anyhow::Result<()> {
    let answer = client
        .put_value(&[collection, name], body, Precondition::None)
        .await;
    answer
        .map(|_| ())
        .with_context(|| format!("declare {collection}/{name}"))
}
