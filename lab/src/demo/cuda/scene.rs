//! Participants of the run, with the requests and checks shared by all steps.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use muster_api::client::Client;

use super::super::DemoOptions;
use super::super::artifacts::toml_as_json;
use super::super::cast::state;
use super::super::programs::Programs;
use super::super::veteran::Veteran;
use super::super::watch::{Fleet, Watch};
use super::stacks::LockedStack;
use crate::Rack;
use crate::plan::small_disk;
use crate::slurm::Slurm;

pub(super) const NODE: &str = "n1";
pub(super) const POOL: &str = "cuda";
pub(super) const STACK: &str = "cuda";
pub(super) const PARTITION: &str = "cuda";
pub(super) const IMAGE: &str = "debian-13";
/// Time limit until an admitted node is idle in Slurm.
const SHORT: Duration = Duration::from_secs(4 * 60);

/// All participants of the run.
pub(super) struct Scene<'run> {
    pub(super) options: &'run DemoOptions,
    pub(super) rack: &'run Rack,
    pub(super) slurm: &'run Slurm,
    pub(super) programs: &'run Programs,
    pub(super) watch: Watch,
    /// Logins of the machine's admin, whose public key is a file of both stacks.
    pub(super) admin: Veteran<'run>,
    /// Folder for the files of the run.
    pub(super) work: PathBuf,
    /// The stack with driver 550, from `--stack`.
    pub(super) first: LockedStack,
    /// The stack with driver 535.
    pub(super) other: LockedStack,
}

impl<'run> Scene<'run> {
    /// Reads both locked stacks, and adds the admin's key to the files of each.
    pub(super) async fn build(
        options: &'run DemoOptions,
        rack: &'run Rack,
        slurm: &'run Slurm,
        programs: &'run Programs,
    ) -> anyhow::Result<Self> {
        let watch = Watch::new();
        watch.say(&format!(
            "the console is at {} (user admin, password {})",
            programs.url(),
            programs.password()
        ));
        watch.say(&format!("machines run by {}", rack.accel));
        let work = options.dir.join("cuda");
        std::fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
        let admin = Veteran::new(options, rack, 0, NODE, &small_disk(1)).await?;
        let key = admin.admin_public_key()?;
        let other = options.artifacts.cache.join("stack/cuda/535.toml");
        let read = |source: &PathBuf, branch: &str| {
            LockedStack::read(toml_as_json(source)?, branch, &key, &work)
                .with_context(|| source.display().to_string())
        };
        let (first, other) = (read(&options.artifacts.stack, "550")?, read(&other, "535")?);
        Ok(Self {
            options,
            rack,
            slurm,
            programs,
            watch,
            admin,
            work,
            first,
            other,
        })
    }

    pub(super) fn client(&self) -> &'run Client {
        self.programs.client()
    }

    /// Checks that the node is in service: by the API, by the state `idle` in Slurm, and by a job.
    pub(super) async fn check_service(&self) -> anyhow::Result<()> {
        let what = format!("{NODE} to serve");
        let serves = self
            .watch
            .until(self.client(), &what, SHORT, async |fleet| {
                check_well(fleet)?;
                // A controller that reads its configuration gives no answer.
                let listed = self
                    .slurm
                    .run("sinfo", &["-h", "-n", NODE, "-o", "%T"])
                    .await;
                let is_idle = listed.is_ok_and(|listed| listed.trim() == "idle");
                Ok(is_idle && state(fleet, NODE) == "in_service")
            });
        serves.await?;
        let job = ["-p", PARTITION, "-D", "/", "-w", NODE, "hostname"];
        let said = self.slurm.srun(&job).await?;
        ensure!(said.trim() == NODE, "srun on {NODE} ran elsewhere: {said}");
        Ok(())
    }
}

/// Checks that the node has neither failed nor been quarantined.
pub(super) fn check_well(fleet: &Fleet) -> anyhow::Result<()> {
    let reason = fleet.get(NODE).and_then(|status| status.reason.as_deref());
    ensure!(
        !matches!(state(fleet, NODE), "failed" | "quarantined"),
        "{NODE} is {}: {}",
        state(fleet, NODE),
        reason.unwrap_or("without a reason")
    );
    Ok(())
}
