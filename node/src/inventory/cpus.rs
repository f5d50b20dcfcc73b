//! Processor packages, from the kernel's topology.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::facts::Cpu;

use super::text;
use crate::{files, paths};

const FOLDER: &str = "/sys/devices/system/cpu";
/// Longest /proc/cpuinfo, in bytes: the file of a machine with a thousand threads is below 2 MiB.
const CPUINFO_MAX: u64 = 16 << 20;

/// Returns an entry per socket, by number.
pub fn list() -> Vec<Cpu> {
    let mut sockets: BTreeMap<u32, (BTreeSet<String>, u32)> = BTreeMap::new();
    for name in text::names(FOLDER)
        .iter()
        .filter(|name| is_numbered(name, "cpu"))
    {
        let topology = format!("{FOLDER}/{name}/topology");
        let Some(socket) = text::number(format!("{topology}/physical_package_id")) else {
            continue;
        };
        // Threads of a core list the same siblings; `core_id` alone repeats between dies.
        let siblings =
            text::line(format!("{topology}/thread_siblings_list")).unwrap_or_else(|| name.clone());
        let (cores, threads) = sockets.entry(socket).or_default();
        cores.insert(siblings);
        *threads += 1;
    }
    let model = model().unwrap_or_default();
    sockets
        .into_iter()
        .map(|(socket, (cores, threads))| Cpu {
            socket,
            model: model.clone(),
            cores: u32::try_from(cores.len()).unwrap_or(u32::MAX),
            threads,
        })
        .collect()
}

/// Returns the number of NUMA nodes seen by the kernel; 0 when unknown.
pub fn numa_nodes() -> u32 {
    let nodes = text::names("/sys/devices/system/node");
    u32::try_from(
        nodes
            .iter()
            .filter(|name| is_numbered(name, "node"))
            .count(),
    )
    .unwrap_or(u32::MAX)
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Returns the model of the first processor: all sockets of a machine hold the same model.
fn model() -> Option<String> {
    let bytes = files::read_capped(&paths::at("/proc/cpuinfo"), CPUINFO_MAX).ok()?;
    let info = String::from_utf8_lossy(&bytes);
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    text::clean(line.split_once(':')?.1)
}
