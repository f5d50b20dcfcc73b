//! Declares the objects of the run as any API client does. The suite is given by `--suite`.

use anyhow::Context;
use muster_core::images::ImageManifest;
use serde_json::{Value, json};

use super::super::artifacts::toml_as_json;
use super::super::declare::{munge_key, node, put, site, subnet, upload};
use super::scene::{IMAGE, PARTITION, POOL, STACK, Scene};
use crate::plan::{GATEWAY, RackPlan};

/// Power budget of the rack in watts, for its single machine.
const RACK_BUDGET_W: u32 = 250;

/// Declares all objects, and starts the site's agent.
pub(super) async fn declare_objects(scene: &Scene<'_>) -> anyhow::Result<()> {
    let (client, options) = (scene.client(), scene.options);
    scene
        .watch
        .say("declare the site, the image, the stack with driver 550, the suite, the cluster, and a node");
    site(client, options).await?;
    scene.programs.start_agent(client).await?;
    let rack = json!({ "site": "lab", "units": 12, "power_budget_w": RACK_BUDGET_W });
    put(client, "racks", "r1", rack).await?;
    put(client, "subnets", "provisioning", subnet()).await?;
    let profile = build_profile(scene)?;
    put(client, "hardware_profiles", "virtual-node", profile).await?;
    let suite = toml_as_json(&options.artifacts.suite)?;
    let suite_name = suite["name"].as_str().context("the suite has no name")?;
    put(client, "suites", suite_name, suite.clone()).await?;
    declare_image(scene).await?;
    munge_key(client, scene.slurm).await?;
    let blobs = &options.artifacts.bundle;
    scene.first.publish(scene.programs, STACK, blobs).await?;
    let cluster = json!({
        "kind": "slurm", "site": "lab", "conf": scene.slurm.client_conf, "include_dir": scene.slurm.include_dir,
        "partition": PARTITION, "address": GATEWAY,
    });
    put(client, "clusters", "slurm-lab", cluster).await?;
    let pool = json!({
        "image": IMAGE, "stack": STACK, "suite": suite_name, "cluster": "slurm-lab", "max_unavailable": "100%",
    });
    put(client, "pools", POOL, pool).await?;
    let text = std::fs::read(scene.rack.dir.join("rack.json")).context("the rack's plan")?;
    let plan: RackPlan = serde_json::from_slice(&text)?;
    for (index, machine) in plan.machines.iter().enumerate() {
        node(client, index, machine).await?;
    }
    Ok(())
}

/// Returns the hardware profile of the reference machine. NCCL is required, because both stacks
/// have NCCL.
fn build_profile(scene: &Scene<'_>) -> anyhow::Result<Value> {
    let mut profile = toml_as_json(&scene.options.artifacts.profile)?;
    profile["thresholds"]["library.nccl"] = json!({
        "value": 1, "unit": "files", "provenance": "seed", "source": "both stacks have libnccl2",
    });
    Ok(profile)
}

async fn declare_image(scene: &Scene<'_>) -> anyhow::Result<()> {
    let folder = scene.options.artifacts.cache.join(IMAGE);
    let path = folder.join("manifest.json");
    let text = std::fs::read(&path)
        .with_context(|| format!("{}: run images/debian/build 13", path.display()))?;
    let manifest: ImageManifest = serde_json::from_slice(&text)?;
    upload(scene.client(), &folder.join("image.raw.zst")).await?;
    let manifest = serde_json::to_value(manifest)?;
    put(scene.client(), "images", IMAGE, manifest).await
}
