//! Power on and power cycle on request, for simulated machines, by the rules of the real agent.

use muster_core::ids::PermitId;
use muster_core::wire::job::Job;
use muster_core::wire::result::JobResult;

use super::agent::{Agent, Bad, fatal};
use super::machine::Running;

impl Agent {
    /// Switches a machine on; a running machine is left running.
    pub(super) async fn power_on(&self, job: &Job, permit: PermitId) -> Result<JobResult, Bad> {
        if self.with(job, |machine| machine.running == Running::Off) {
            let done = self.permitted(job, "power_on", permit).await?;
            let _go_or_already = self.once(job, done.clone()).await?;
            self.step()?;
            self.with(job, |machine| machine.boot_disk(done));
        }
        self.step()?;
        self.done(job).await?;
        Ok(JobResult::PoweredOn)
    }

    /// Cycles the power, once. A second attempt fails instead, because the agent cannot see whether
    /// an earlier reset happened.
    pub(super) async fn power_cycle(&self, job: &Job, permit: PermitId) -> Result<JobResult, Bad> {
        if !job.acts.is_empty() {
            return Err(fatal("power_cycle_unproven", "it may have happened".into()));
        }
        let done = self.permitted(job, "power_on", permit).await?;
        match self.once(job, done).await? {
            Some(done) => self.with(job, |machine| machine.boot_disk(done)),
            None => return Err(fatal("power_cycle_unproven", "it may have happened".into())),
        }
        self.step()?;
        self.done(job).await?;
        Ok(JobResult::PoweredOn)
    }
}
