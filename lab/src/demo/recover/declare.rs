//! Declares the fleet as any API client does. The machines are small, the stack has no reboot-class
//! items, the gates run for seconds, and the recovery ladder is complete.

use anyhow::Context;
use muster_api::client::Client;
use serde_json::{Value, json};

use super::super::artifacts::toml_as_json;
use super::super::declare::{blobs_of_stack, image, munge_key, node, put, subnet};
use super::super::veteran::NOT_NEEDED;
use super::DemoOptions;
use crate::Rack;
use crate::plan::{GATEWAY, RackPlan};
use crate::slurm::Slurm;

pub(super) const POOL: &str = "serving";
pub(super) const PARTITION: &str = "all";
const SUITE: &str = include_str!("suite.toml");
/// Least RDMA bandwidth of an unlimited path, in Gb/s.
const FAST_RDMA: f64 = 0.005;
/// Highest RDMA message latency over Soft-RoCE in µs, 99th percentile. Measured: 8 to 15 ms with
/// two pairs at once, 43 ms on a slower host.
const PROMPT_RDMA: u32 = 250_000;
/// Power maximum of a node in watts, equal to the value in the profile of the reference machines.
const NODE_W: u32 = 200;

/// Declares all objects of the scenarios except the nodes' adoption.
pub(super) async fn fleet(
    client: &Client,
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
) -> anyhow::Result<()> {
    let text = std::fs::read(rack.dir.join("rack.json")).context("the rack's plan")?;
    let plan: RackPlan = serde_json::from_slice(&text)?;
    let budget = u32::try_from(plan.machines.len())? * NODE_W;
    put(
        client,
        "racks",
        "r1",
        json!({ "site": "lab", "units": 12, "power_budget_w": budget }),
    )
    .await?;
    put(client, "subnets", "provisioning", subnet()).await?;
    put(
        client,
        "hardware_profiles",
        "virtual-node",
        profile(options)?,
    )
    .await?;
    put(client, "suites", "recoveries", toml::from_str(SUITE)?).await?;
    image(client, options).await?;
    munge_key(client, slurm).await?;
    blobs_of_stack(client, options).await?;
    put(client, "stacks", "serving", stack(options)?).await?;
    let cluster = json!({
        "kind": "slurm", "site": "lab", "conf": slurm.client_conf, "include_dir": slurm.include_dir, "partition": PARTITION,
        "address": GATEWAY,
    });
    put(client, "clusters", "slurm-lab", cluster).await?;
    // The limits per node are high on purpose: the scenarios reach only the limits of the fleet.
    let ladder = [
        "collect",
        "restart_services",
        "reboot",
        "power_cycle",
        "rma",
    ];
    let health = json!({
        "sweep": "recoveries", "sweep_every_h": 720, "recovery": { "rungs": ladder, "per_node": 10, "within_h": 1 },
    });
    let pool = json!({
        "image": "debian-12", "stack": "serving", "suite": "recoveries", "cluster": "slurm-lab", "max_unavailable": "100%", "health": health,
    });
    put(client, "pools", POOL, pool).await?;
    for (index, machine) in plan.machines.iter().enumerate() {
        node(client, index, machine).await?;
    }
    Ok(())
}

/// Returns the hardware profile of the reference machine, with half the memory and a single disk.
fn profile(options: &DemoOptions) -> anyhow::Result<Value> {
    let mut profile = toml_as_json(&options.artifacts.profile)?;
    profile["memory_mib"] = json!(850);
    profile["schedulable_memory_mib"] = json!(700);
    profile["power_max_w"] = json!(NODE_W);
    profile["disks"][0]["count"] = json!(1);
    // Every machine gets an RDMA adapter before pairs are measured. Three pairs at once share the
    // host's CPUs, so the thresholds are lower than on metal.
    let parts = profile.as_object_mut().context("the profile is no table")?;
    parts.remove("gates");
    parts["thresholds"]["rdma.bandwidth"]["value"] = json!(FAST_RDMA);
    parts["thresholds"]["rdma.latency"] = json!({ "value": PROMPT_RDMA, "unit": "µs", "provenance": "seed", "source": "measured in this rack" });
    Ok(profile)
}

/// A mount unit left out of the stack. The veteran mounts the share without waiting for its
/// network, so after a boot the mount may be missing.
const SHARED: &str = "shared.mount";

/// Returns the reference stack reduced to the parts already present on the machines. Converge then
/// starts dead services, but never installs a package or reboots.
pub(super) fn stack(options: &DemoOptions) -> anyhow::Result<Value> {
    let mut stack = toml_as_json(&options.artifacts.stack)?;
    let parts = stack.as_object_mut().context("the stack is no table")?;
    for part in [
        "kernel_args",
        "modules_load",
        "modules_blacklist",
        "sysctl",
        "limits",
    ] {
        parts.remove(part);
    }
    let needed = |name: &str| !NOT_NEEDED.contains(&name) && name != SHARED;
    let packages = parts["packages"]
        .as_object_mut()
        .context("the stack has no packages")?;
    packages.retain(|name, _| needed(name));
    let named = |item: &Value| item["name"].as_str().is_some_and(needed);
    parts["lock"]["packages"]
        .as_array_mut()
        .context("the stack has no lock")?
        .retain(named);
    parts["services"]
        .as_array_mut()
        .context("the stack has no services")?
        .retain(named);
    let files = parts["files"]
        .as_array_mut()
        .context("the stack has no files")?;
    let left_out = |path: &str| {
        ["chrony", "shared", "modprobe.d"]
            .iter()
            .any(|part| path.contains(part))
    };
    files.retain(|file| file["path"].as_str().is_some_and(|path| !left_out(path)));
    Ok(stack)
}
