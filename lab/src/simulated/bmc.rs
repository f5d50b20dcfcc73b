//! Login to the BMC of a simulated machine, and the change of its password, by the rules of the
//! real agent.

use muster_core::values::Secret;
use muster_core::wire::bmc::Power;
use muster_core::wire::bmc::RotateBmc;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::result::JobResult;

use super::agent::{Agent, Bad, fatal};
use super::machine::Machine;

impl Machine {
    fn takes(&self, password: &Secret) -> bool {
        self.bmc_password
            .as_deref()
            .is_none_or(|known| known == password.reveal())
    }

    fn lets_in(&self, power: &Power) -> bool {
        let (password, also) = match power {
            Power::Redfish(bmc) => (&bmc.password, &bmc.also),
            Power::Ipmi(bmc) => (&bmc.password, &bmc.also),
            Power::Manual { .. } => return true,
        };
        self.takes(password) || also.as_ref().is_some_and(|also| self.takes(also))
    }
}

impl Agent {
    /// Rejects a job if the BMC refuses the job's credentials.
    pub(super) fn let_in(&self, job: &Job) -> Result<(), Bad> {
        let power = match &job.spec {
            JobSpec::BootLive(boot) => &boot.power,
            JobSpec::PowerOff { power, .. }
            | JobSpec::PowerOn { power, .. }
            | JobSpec::PowerCycle { power, .. }
            | JobSpec::BootDisk { power, .. }
            | JobSpec::Reboot { power, .. } => power,
            _ => return Ok(()),
        };
        match self.with(job, |machine| machine.lets_in(power)) {
            true => Ok(()),
            false => Err(fatal(
                "bmc_credentials",
                "simulated: the BMC refuses these credentials".into(),
            )),
        }
    }

    /// Changes the password to the next password. Succeeds at once if an earlier attempt already
    /// changed the password; the reply to a change can get lost.
    pub(super) async fn rotate_bmc(&self, job: &Job, order: &RotateBmc) -> Result<JobResult, Bad> {
        let next = order.next.reveal();
        if order.tried && self.with(job, |machine| machine.bmc_password.as_deref() == Some(next)) {
            return Ok(JobResult::BmcRotated);
        }
        self.step()?;
        if !self.with(job, |machine| machine.lets_in(&order.power)) {
            return Err(fatal(
                "bmc_credentials",
                "simulated: the BMC refuses these credentials".into(),
            ));
        }
        self.with(job, |machine| machine.bmc_password = Some(next.to_owned()));
        self.step()?;
        Ok(JobResult::BmcRotated)
    }
}
