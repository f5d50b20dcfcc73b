//! Jobs done by muster-node on the machine.

use muster_core::wire::PROTOCOL;
use muster_core::wire::job::Job;
use muster_core::wire::node::{Plan, Work, WorkResult};
use muster_core::wire::result::JobResult;

use super::super::machine::node_program::Heard;
use super::{Agent, Bad, failed, fatal};

impl Agent {
    /// Follows the work of muster-node on the machine, including the permit challenge. The work
    /// continues when this process dies.
    pub(super) async fn run_on_node(&self, job: &Job, work: Work) -> Result<JobResult, Bad> {
        let plan = Plan {
            protocol: PROTOCOL,
            job: job.id,
            attempt: job.attempt,
            node: job.node,
            epoch: job.epoch,
            timeout_s: job.timeout_s,
            work,
        };
        self.step()?;
        let mut heard = self.with(job, |machine| machine.run(&plan));
        if let Heard::Challenge(challenge) = heard {
            self.step()?;
            let answer = self.redeem(job, challenge.permit, Some(challenge)).await?;
            self.step()?;
            self.with(job, |machine| {
                machine.answer(job.id, &answer, &self.trusted)
            });
            self.step()?;
            self.done(job).await?;
            heard = self.with(job, |machine| machine.run(&plan));
        }
        self.done(job).await?;
        match heard {
            Heard::Result(WorkResult::Failed(failure)) => Err(Bad::Fails(failure)),
            Heard::Result(WorkResult::ImageWritten(written)) => {
                Ok(JobResult::ImageWritten(written))
            }
            Heard::Result(WorkResult::Converged(report)) => Ok(JobResult::Converged(report)),
            Heard::Result(WorkResult::Gated {
                results,
                fingerprint,
            }) => Ok(JobResult::Gated {
                results,
                fingerprint,
            }),
            Heard::Result(WorkResult::Wiped { disks }) => Ok(JobResult::Wiped { disks }),
            Heard::Stale => Err(fatal(
                "stale_on_node",
                "the node works on a later assignment".into(),
            )),
            Heard::Challenge(_) => Err(failed("no_answer")),
        }
    }
}
