//! Fault injection during the main job. The agent is killed during the image write and during the
//! package transaction. The server is killed between two states, and the database while gates run.
//! In addition, the failing node loses its power during its package transaction. Each fault happens
//! once, and the run must finish without help.

use anyhow::ensure;
use muster_api::client::Client;
use muster_api::operations::Operation;

use super::cast::FAILING;
use super::programs::Programs;
use crate::Rack;
use crate::machine::oracle::Cause;
use crate::parts::Part;

/// The moment of a fault, recognized by the steps of a running operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The image write has begun and is not finished: 10 to 95 percent done.
    ImageHalfWritten,
    /// Packages are being installed.
    PackagesHalfInstalled,
    /// The image is written, and the boot from the disk has just been leased.
    BetweenStates,
    /// Gates are running.
    GatesRunning,
}

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Part(Part),
    /// The power of the failing node. Power returns at once, and the machine boots again. The other
    /// node has more acts left at that time, and the run lasts as long as the longer of the two.
    Power,
}

impl Victim {
    fn can_be(self, node: &str) -> bool {
        match self {
            Self::Part(_) => true,
            Self::Power => node == FAILING,
        }
    }
}

/// The faults not yet injected.
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

    /// Reads the running operations and injects the first fault due. An unreachable API is no
    /// error, because the next call reads again.
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
        let due = |(moment, victim): &(Moment, Victim)| {
            running
                .iter()
                .find(|operation| come(*moment, operation) && victim.can_be(target(operation)))
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
        let node = target(operation);
        println!("          {moment:?}: killing {victim:?} ({node})");
        match victim {
            Victim::Part(part) => programs.kill_and_restart(part).await,
            Victim::Power => Ok(rack.slot(node)?.machine.power_cycle(Cause::Lab).await?),
        }
    }

    /// Checks that every fault was injected. A run without all faults proves no resilience.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        ensure!(
            self.left.is_empty(),
            "the run ended before these could be killed: {:?}",
            self.left
        );
        Ok(())
    }
}

/// Returns the name of the operation's node; empty when the operation has no target.
fn target(operation: &Operation) -> &str {
    operation
        .target
        .as_ref()
        .map(|target| target.name.as_str())
        .unwrap_or_default()
}

fn come(moment: Moment, operation: &Operation) -> bool {
    let step = |wanted: &str, state: &str| {
        operation
            .steps
            .iter()
            .find(|step| step.step == wanted && step.state == state)
    };
    let progress = |wanted: &str| step(wanted, "leased")?.progress.as_ref();
    let part = |wanted: &str| {
        let progress = progress(wanted)?;
        Some(progress.done? as f64 / progress.total?.max(1) as f64)
    };
    match moment {
        Moment::ImageHalfWritten => {
            part("write_image").is_some_and(|part| (0.1..0.95).contains(&part))
        }
        Moment::BetweenStates => {
            step("write_image", "succeeded").is_some() && step("boot_disk", "leased").is_some()
        }
        // The package transaction alone is counted in steps.
        Moment::PackagesHalfInstalled => {
            progress("converge").is_some_and(|progress| progress.unit.as_deref() == Some("steps"))
        }
        Moment::GatesRunning => progress("gates").is_some(),
    }
}
