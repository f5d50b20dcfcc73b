//! What the machines' own logs and disks say, apart from anything Muster believes.

use anyhow::ensure;

use super::Disturbance;
use super::watch::Watch;
use crate::Rack;
use crate::machine::oracle::{Cause, Happening};

/// Blocks read from each wiped disk: half anywhere, half where the host has stored anything.
const SAMPLES: usize = 2048;

/// Reads random blocks of every disk of a node that is off; all must be zero.
pub(super) fn disks_are_clean(rack: &Rack, node: &str, watch: &Watch) -> anyhow::Result<()> {
    let seed: u64 = rand::random();
    let slot = rack.slot(node)?;
    let mut read = 0;
    for disk in slot.machine.plan.disks.iter().map(|disk| disk.serial.as_str()) {
        let blocks = slot.machine.disk_sample(disk, seed, SAMPLES)?;
        let dirty = blocks.iter().filter(|block| !block.zero).count();
        ensure!(dirty == 0, "{dirty} of {} blocks of {disk} still hold data (seed {seed})", blocks.len());
        read += blocks.len();
    }
    watch.say(&format!("every disk of {node} reads as zero from outside: {read} blocks, seed {seed}"));
    Ok(())
}

/// Power acts by the BMC that two kills in a row could at most have made: boots of inspection, imaging, disk, wiping, and as many retries.
const MOST_POWER_ACTS: usize = 8;

/// No once-only act was done twice: a reset follows another only after the guest had time to run, and no machine was powered on while on.
pub(super) fn check(rack: &Rack, disturbance: Disturbance) -> anyhow::Result<()> {
    for (name, slot) in rack.slots() {
        let log = slot.machine.oracle()?;
        let acts: Vec<_> = log
            .iter()
            .filter(|entry| matches!(entry.cause, Cause::Bmc { .. }))
            .filter(|entry| matches!(entry.what, Happening::PowerOn { .. } | Happening::Reboot { .. }))
            .collect();
        for pair in acts.windows(2) {
            let apart = pair[1].at.duration_since(pair[0].at);
            ensure!(apart.as_secs() >= 10, "{name}: two power acts {} s apart: {pair:?}", apart.as_secs());
        }
        let most = if disturbance == Disturbance::None { MOST_POWER_ACTS / 2 + 1 } else { MOST_POWER_ACTS };
        ensure!(acts.len() <= most, "{name}: {} power acts, at most {most} were needed", acts.len());
    }
    Ok(())
}
