//! Compares the cost of a change on a full cluster: a rollout by the planner, and playbooks of Ansible.
//! `rollout-cost NODES SEED`. Both get the same jobs, the same
//! durations and the same number of nodes out of service. Prints a line of JSON for each way.

mod cluster; // Nodes with jobs
mod planned; // A rollout
mod playbook; // A playbook

use std::time::Instant;

use anyhow::Context as _;
use serde_json::json;

use cluster::{Cluster, Faults, Outcome};

const USAGE: &str = "usage: rollout-cost NODES SEED";
/// GPUs of a node.
const GPUS: u64 = 8;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let nodes: usize = arguments.next().context(USAGE)?.parse().context(USAGE)?;
    let seed: u64 = arguments.next().context(USAGE)?.parse().context(USAGE)?;
    // At most 5 % of the nodes are out at a time, in every way.
    let most = (nodes / 20).max(1);
    for faults in [Faults::None, Faults::OneInTen, Faults::All] {
        let cluster = || Cluster::new(nodes, seed, faults);
        report("muster", faults, || planned::run(cluster(), most))?;
        let linear = || playbook::run_linear(cluster(), most);
        report("ansible_linear", faults, linear)?;
        let pinned = || playbook::run_host_pinned(cluster(), most);
        report("ansible_host_pinned", faults, pinned)?;
    }
    Ok(())
}

fn report(
    way: &str,
    faults: Faults,
    run: impl FnOnce() -> anyhow::Result<Outcome>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let outcome = run()?;
    let line = json!({
        "way": way,
        "faults": faults.code(),
        "hours": outcome.took_s as f64 / 3600.0,
        "idle_gpu_hours": (outcome.idle_s * GPUS) as f64 / 3600.0,
        "done": outcome.done,
        "broken": outcome.broken,
        "measured_s": began.elapsed().as_secs_f64(),
    });
    println!("{line}");
    Ok(())
}
