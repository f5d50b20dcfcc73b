//! Kills what must survive being killed: the agent in the middle of the image write and of the package transaction, the server between
//! states, the database while everything runs. Each once; the run must finish by itself.

use anyhow::ensure;
use muster_api::client::Client;
use muster_api::operations::Operation;

use super::programs::Programs;
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

/// What is left to be killed.
pub(super) struct Chaos {
    left: Vec<(Moment, Part)>,
}

impl Chaos {
    pub(super) fn new(wanted: bool) -> Self {
        let all = vec![
            (Moment::ImageHalfWritten, Part::Agent),
            (Moment::BetweenStates, Part::Server),
            (Moment::PackagesHalfInstalled, Part::Agent),
            (Moment::GatesRunning, Part::Postgres),
        ];
        Self { left: if wanted { all } else { Vec::new() } }
    }

    /// Looks at the running operations and kills what is due. An API that is away is a later look.
    pub(super) async fn watch(&mut self, programs: &Programs, client: &Client) -> anyhow::Result<()> {
        if self.left.is_empty() {
            return Ok(());
        }
        let Ok(operations) = client.list_operations(&[("limit", "50")]).await else { return Ok(()) };
        let running: Vec<Operation> = operations.items.into_iter().filter(|operation| !operation.done).collect();
        let Some(index) =
            self.left.iter().position(|(moment, _)| running.iter().any(|operation| come(*moment, operation)))
        else {
            return Ok(());
        };
        let (moment, part) = self.left.remove(index);
        println!("          {moment:?}: killing {part:?}");
        programs.kill_and_restart(part).await
    }

    /// Every kill must have happened, or the run proved nothing.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        ensure!(self.left.is_empty(), "the run ended before these could be killed: {:?}", self.left);
        Ok(())
    }
}

fn come(moment: Moment, operation: &Operation) -> bool {
    let step =
        |wanted: &str, state: &str| operation.steps.iter().find(|step| step.step == wanted && step.state == state);
    let doing = |wanted: &str| Some(step(wanted, "leased")?.progress.as_ref()?.message.as_str());
    let part = |wanted: &str| {
        let progress = step(wanted, "leased").and_then(|step| step.progress.as_ref());
        progress.and_then(|progress| Some(progress.done? as f64 / progress.total?.max(1) as f64))
    };
    match moment {
        Moment::ImageHalfWritten => part("write_image").is_some_and(|part| (0.1..0.95).contains(&part)),
        Moment::BetweenStates => step("write_image", "succeeded").is_some() && step("boot_disk", "leased").is_some(),
        // In muster-node's own words for the package transaction.
        Moment::PackagesHalfInstalled => doing("converge").is_some_and(|message| message.starts_with("installs ")),
        Moment::GatesRunning => doing("gates").is_some(),
    }
}
