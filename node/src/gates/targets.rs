//! The disks or mounts of a gate, with a run each.

use muster_core::facts::{Disk, DiskTransport};
use muster_core::gates::Each;
use muster_core::stacks::ConvergePlan;

use super::Bench;
use super::call::Target;

/// Lists the targets of a gate in their order. A disk without a serial is an error.
pub(super) fn list_targets(each: Each, bench: &Bench<'_>) -> Vec<Result<Target, String>> {
    let disk = |disk: &Disk| -> Result<Target, String> {
        let serial = disk
            .serial
            .clone()
            .ok_or_else(|| format!("disk {} has no serial", disk.name))?;
        Ok(Target {
            word: format!("/dev/{}", disk.name),
            entity: serial,
        })
    };
    let disks = bench.facts.disks.iter();
    let of = |transport| {
        disks
            .clone()
            .filter(move |disk| disk.transport == transport)
    };
    match each {
        Each::Disks => disks.clone().map(disk).collect(),
        Each::NvmeDisks => of(DiskTransport::Nvme).map(disk).collect(),
        Each::SataDisks => of(DiskTransport::Sata).map(disk).collect(),
        Each::Mounts => {
            let mounts = bench.plan.stack.iter().flat_map(ConvergePlan::mounts);
            mounts
                .map(|(_, place)| {
                    Ok(Target {
                        word: place.clone(),
                        entity: place,
                    })
                })
                .collect()
        }
    }
}
