//! Compares the node's facts with the hardware profile. Also detects a DIMM or disk lost since the
//! inspection.

use super::{Bench, Reading};
use crate::gates::no_gpu;

pub(super) fn measure(bench: &Bench<'_>) -> Reading {
    let Bench { facts, plan, .. } = bench;
    let mut reading = Reading::default();
    let misses = plan.profile.misses(facts);
    let cores = facts.cpus.iter().map(|cpu| cpu.cores).min().unwrap_or(0);
    reading.count("profile.misses", misses.len());
    reading.count("cpu.sockets", facts.cpus.len());
    reading.add("cpu.cores_per_socket", cores);
    reading.add("memory.total", (facts.memory.total_bytes >> 20) as f64);
    reading.add("numa.nodes", facts.numa_nodes);
    reading.count("disks.found", facts.disks.len());
    reading.count(
        "nics.linked",
        facts.nics.iter().filter(|nic| nic.link_up).count(),
    );
    let misses = misses.iter().map(ToString::to_string);
    reading.notes = no_gpu::report(bench).into_iter().chain(misses).collect();
    reading
}
