//! Powers a machine on at the request of an operator. Power on: observe, then act. Power cycle:
//! `once`, because a past reset leaves no visible trace.

use muster_core::ids::PermitId;
use muster_core::wire::bmc::Power;
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::result::JobResult;

use super::power::{self, By, Started};
use crate::bmc::{Bmc, BootOnce, PowerState};
use crate::work::context::{JobContext, fatal};

pub(super) async fn run(
    context: &JobContext,
    power: &Power,
    permit: PermitId,
) -> Result<JobResult, Failure> {
    power::turn_on(context, &bmc(context, power).await?, permit)
        .await
        .map(|()| JobResult::PoweredOn)
}

/// Cycles the machine through its firmware, from any power state.
pub(super) async fn cycle(
    context: &JobContext,
    power: &Power,
    permit: PermitId,
) -> Result<JobResult, Failure> {
    let bmc = bmc(context, power).await?;
    let (started, view) = power::start(context, &bmc, permit, BootOnce::None).await?;
    match (started, view.power) {
        (Started::Earlier { age }, PowerState::On) => {
            let unseen = format!(
                "an attempt that was not heard of any more had begun it {} s ago; the BMC shows on, which does not tell whether \
                 it went through: look at the machine, and ask again if it did not",
                age.as_secs()
            );
            Err(fatal(FailureCode::PowerCycleUnproven, unseen))
        }
        // The machine is off, so the remaining step is to power on.
        (Started::Earlier { .. } | Started::Now, _) => power::turn_on(context, &bmc, permit)
            .await
            .map(|()| JobResult::PoweredOn),
    }
}

async fn bmc(context: &JobContext, power: &Power) -> Result<Bmc, Failure> {
    match power::by(context, power).await? {
        By::Bmc(bmc) => Ok(bmc),
        By::Person(person) => Err(fatal(
            FailureCode::NoBmc,
            format!("{} has no BMC: ask {person}", context.job.node_name),
        )),
    }
}
