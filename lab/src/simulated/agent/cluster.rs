//! Orders for the scheduler of the simulated fleet.

use muster_core::wire::job::Job;
use muster_core::wire::result::JobResult;

use super::super::habits::What;
use super::super::machine::Machine;
use super::{Agent, Bad, Stop, failed};

impl Agent {
    /// Lists the machine in the scheduler. Jobs of users start at once.
    pub(super) async fn admit(
        &self,
        job: &Job,
        revision: i64,
        name: &str,
    ) -> Result<JobResult, Bad> {
        self.takes(job, What::Admit).await?;
        self.step()?;
        if !self.configure(job, revision, name).await? {
            return Err(failed("not_listed"));
        }
        self.with(job, Machine::serve);
        Ok(JobResult::Admitted {
            view: "idle".into(),
        })
    }

    /// Waits for the end of the machine's job. No further job starts.
    pub(super) async fn drain(&self, job: &Job, requeue: bool) -> Result<JobResult, Bad> {
        self.with(job, |machine| machine.drain(job.id));
        if requeue {
            self.rack().scheduler.requeue(&job.node_name);
        }
        self.done(job).await?;
        Ok(JobResult::Drained)
    }

    /// Removes the machine from the scheduler's list.
    pub(super) async fn remove(
        &self,
        job: &Job,
        revision: i64,
        name: &str,
    ) -> Result<JobResult, Bad> {
        self.takes(job, What::Remove).await?;
        self.step()?;
        if self.configure(job, revision, name).await? {
            return Err(failed("still_listed"));
        }
        self.with(job, Machine::leave);
        Ok(JobResult::Removed)
    }

    /// Brings the scheduler's configuration to a revision, with a single list for all waiting jobs. Returns whether the list has the node.
    async fn configure(&self, job: &Job, revision: i64, name: &str) -> Result<bool, Stop> {
        let _alone = self.writing.lock().await;
        if self.rack().scheduler.revision < revision {
            let list = self.list_members(job).await?;
            self.rack().configure(&list);
        }
        Ok(self.rack().scheduler.lists(name))
    }
}
