//! Checks against the machines' own logs and disks, independent of Muster's records.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};
use jiff::Timestamp;
use muster_api::client::Client;
use muster_api::nodes::NodeSpec;
use uuid::Uuid;

use super::watch::Watch;
use crate::Rack;
use crate::machine::oracle::{Cause, Entry, Happening};

/// Blocks read from each wiped disk: half at random places, half at places with stored data on the
/// host.
const SAMPLES: usize = 2048;
/// Most event pages read; a run has only a few.
const MOST_PAGES: usize = 100;

/// Reads random blocks from every disk of a powered-off node. Every block must be zero. The seed is
/// printed, so that a failure can be repeated.
pub(super) fn disks_are_clean(rack: &Rack, node: &str, watch: &Watch) -> anyhow::Result<()> {
    let seed: u64 = rand::random();
    let slot = rack.slot(node)?;
    let mut read = 0;
    for disk in slot
        .machine
        .plan
        .disks
        .iter()
        .map(|disk| disk.serial.as_str())
    {
        let blocks = slot.machine.disk_sample(disk, seed, SAMPLES)?;
        let dirty = blocks.iter().filter(|block| !block.zero).count();
        ensure!(
            dirty == 0,
            "{dirty} of {} blocks of {disk} still hold data (seed {seed})",
            blocks.len()
        );
        read += blocks.len();
    }
    watch.say(&format!(
        "every disk of {node} reads as zero from outside: {read} blocks, seed {seed}"
    ));
    Ok(())
}

/// Bytes written to each machine's disks in each boot, observed from outside during the run.
pub(super) struct Written {
    /// Non-zero bytes of the image, equal to the bytes stored by a single write of the image.
    once: u64,
    boots: BTreeMap<(String, u64), u64>,
}

impl Written {
    pub(super) fn new(once: u64) -> Self {
        Self {
            once,
            boots: BTreeMap::new(),
        }
    }

    pub(super) async fn look(&mut self, rack: &Rack) -> anyhow::Result<()> {
        for (name, slot) in rack.slots() {
            let boot = slot.machine.boots();
            let Some(bytes) = slot.machine.written().await else {
                continue;
            };
            let most = self.boots.entry((name.to_owned(), boot)).or_default();
            *most = bytes.max(*most);
        }
        Ok(())
    }

    /// Checks that exactly two nodes were imaged, each in a single boot. A second write would show
    /// at least twice the image's content; the limit is 1.5 times.
    pub(super) fn check(&self, watch: &Watch) -> anyhow::Result<()> {
        let imaged: Vec<_> = self
            .boots
            .iter()
            .filter(|(_, bytes)| **bytes > self.once / 2)
            .collect();
        for ((name, boot), bytes) in &imaged {
            let line = format!(
                "boot {boot} of {name} wrote {} MiB; the image has {}",
                *bytes >> 20,
                self.once >> 20
            );
            ensure!(
                **bytes < self.once * 3 / 2,
                "an image was written twice: {line}"
            );
            watch.say(&line);
        }
        let nodes: BTreeSet<_> = imaged.iter().map(|((name, _), _)| name).collect();
        ensure!(
            imaged.len() == 2 && nodes.len() == 2,
            "two nodes were to be imaged, in one boot each: {imaged:?}"
        );
        Ok(())
    }
}

/// Checks in the machines' own logs that no once-only act was done twice. Every boot caused by
/// Muster must follow a committed start of an act, and every start may cause at most a single boot.
/// Power actions by the lab are ignored.
pub(super) async fn check_acts(rack: &Rack, client: &Client, watch: &Watch) -> anyhow::Result<()> {
    let started = acts_started(client).await?;
    for node in client.list_all::<NodeSpec>(None).await? {
        let Ok(slot) = rack.slot(node.name.as_str()) else {
            continue;
        };
        let acts: Vec<Timestamp> = started
            .iter()
            .filter(|(id, _)| *id == node.id)
            .map(|(_, at)| *at)
            .collect();
        let boots: Vec<_> = slot
            .machine
            .oracle()?
            .into_iter()
            .filter(by_muster)
            .collect();
        for (index, act) in acts.iter().enumerate() {
            let until = acts.get(index + 1).copied().unwrap_or(Timestamp::MAX);
            let caused: Vec<_> = boots
                .iter()
                .filter(|boot| (*act..until).contains(&boot.at))
                .collect();
            ensure!(
                caused.len() <= 1,
                "{}: the act of {act} was done {} times: {caused:?}",
                node.name,
                caused.len()
            );
        }
        let unasked: Vec<_> = boots
            .iter()
            .filter(|boot| acts.first().is_none_or(|first| boot.at < *first))
            .collect();
        ensure!(
            unasked.is_empty(),
            "{}: booted before any act was committed: {unasked:?}",
            node.name
        );
        watch.say(&format!(
            "{}: {} boots by {} committed acts, none done twice",
            node.name,
            boots.len(),
            acts.len()
        ));
    }
    Ok(())
}

fn by_muster(entry: &Entry) -> bool {
    let boot = matches!(
        entry.what,
        Happening::PowerOn { .. } | Happening::Reboot { .. }
    );
    boot && matches!(entry.cause, Cause::Bmc { .. } | Cause::Guest)
}

/// Returns node and time of every committed start of a once-only act, oldest first.
async fn acts_started(client: &Client) -> anyhow::Result<Vec<(Uuid, Timestamp)>> {
    let (mut after, mut started) = (0, Vec::new());
    for _ in 0..MOST_PAGES {
        let page = client.events(after, &[("limit", "500")]).await?;
        if page.items.is_empty() {
            return Ok(started);
        }
        after = page.last_seq;
        let acts = page
            .items
            .into_iter()
            .filter(|event| event.kind == "act.started");
        started.extend(acts.filter_map(|event| Some((event.node?, event.at))));
    }
    bail!("the history has more than {MOST_PAGES} pages")
}
