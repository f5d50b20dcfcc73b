//! Kills what must survive being killed: the agent in the middle of the image write and of the package transaction, the server between
//! states, the database while everything runs; and cuts the power of a machine in its package transaction. Each once; the run must finish by itself.

use anyhow::ensure;
use muster_api::client::Client;
use muster_api::operations::Operation;

use super::programs::Programs;
use crate::Rack;
use crate::machine::oracle::Cause;
use crate::parts::Part;

/// When something is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The write has begun and is not over.
    ImageHalfWritten,
    /// Packages are being installed.
    PackagesHalfInstalled,
    /// A node has just left the disk boot behind.
    BetweenStates,
    /// Gates run.
    GatesRunning,
}

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Part(Part),
    /// The power of the machine whose moment it is; it comes back, and the machine with it.
    Power,
}

/// What is left to be killed.
pub(super) struct Chaos {
    left: Vec<(Moment, Victim)>,
}

impl Chaos {
    pub(super) fn new(wanted: bool) -> Self {
        let all = vec![
            (Moment::ImageHalfWritten, Victim::Part(Part::Agent)),
            (Moment::BetweenStates, Victim::Part(Part::Server)),
            (Moment::PackagesHalfInstalled, Victim::Part(Part::Agent)),
            (Moment::PackagesHalfInstalled, Victim::Power),
            (Moment::GatesRunning, Victim::Part(Part::Postgres)),
        ];
        Self {
            left: if wanted { all } else { Vec::new() },
        }
    }

    /// Looks at the running operations and kills what is due. An API that is away is a later look.
    pub(super) async fn watch(
        &mut self,
        rack: &Rack,
        programs: &Programs,
        client: &Client,
    ) -> anyhow::Result<()> {
        if self.left.is_empty() {
            return Ok(());
        }
        let Ok(operations) = client.list_operations(&[("limit", "50")]).await else {
            return Ok(());
        };
        let running: Vec<Operation> = operations
            .items
            .into_iter()
            .filter(|operation| !operation.done)
            .collect();
        let due = |(moment, _): &(Moment, Victim)| {
            running.iter().find(|operation| come(*moment, operation))
        };
        let Some((index, operation)) = self
            .left
            .iter()
            .enumerate()
            .find_map(|(index, one)| Some((index, due(one)?)))
        else {
            return Ok(());
        };
        let (moment, victim) = self.left.remove(index);
        let target = operation
            .target
            .as_ref()
            .map(|target| target.name.as_str())
            .unwrap_or_default();
        println!("          {moment:?}: killing {victim:?} ({target})");
        match victim {
            Victim::Part(part) => programs.kill_and_restart(part).await,
            Victim::Power => Ok(rack.slot(target)?.machine.power_cycle(Cause::Lab).await?),
        }
    }

    /// Every kill must have happened, or the run proved nothing.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        ensure!(
            self.left.is_empty(),
            "the run ended before these could be killed: {:?}",
            self.left
        );
        Ok(())
    }
}

fn come(moment: Moment, operation: &Operation) -> bool {
    let step = |wanted: &str, state: &str| {
        operation
            .steps
            .iter()
            .find(|step| step.step == wanted && step.state == state)
    };
    let doing = |wanted: &str| Some(step(wanted, "leased")?.progress.as_ref()?.message.as_str());
    let part = |wanted: &str| {
        let progress = step(wanted, "leased").and_then(|step| step.progress.as_ref());
        progress.and_then(|progress| Some(progress.done? as f64 / progress.total?.max(1) as f64))
    };
    match moment {
        Moment::ImageHalfWritten => {
            part("write_image").is_some_and(|part| (0.1..0.95).contains(&part))
        }
        Moment::BetweenStates => {
            step("write_image", "succeeded").is_some() && step("boot_disk", "leased").is_some()
        }
        // In muster-node's own words for the package transaction.
        Moment::PackagesHalfInstalled => {
            doing("converge").is_some_and(|message| message.starts_with("installing "))
        }
        Moment::GatesRunning => doing("gates").is_some(),
    }
}
